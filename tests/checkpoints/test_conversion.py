# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hf_sparse_hopfield.checkpoints import convert_checkpoint, dense_checkpoint, load_model
from hf_sparse_hopfield.cli import main
from hf_sparse_hopfield.files import check_output

from ..leftovers import leftovers
from ..tiny_families import tiny_family
from ..tiny_models import tiny_inputs, tiny_model, tiny_output


ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["bert", "llama", "t5", "vit", "mpnet", "gpt2", "whisper"])
def test_there_and_back(name, tmp_path):
    model = tiny_model(name)
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    expected = tiny_output(model, tiny_inputs(name))
    model.save_pretrained(tmp_path / "dense")
    result = convert_checkpoint(str(tmp_path / "dense"), tmp_path / "sparse", {"alpha": 1.5})
    assert result["difference"] < 1e-4
    sparse = load_model(str(tmp_path / "sparse"))
    assert type(sparse).__name__ == f"SparseHopfield{type(model).__name__}"
    assert not torch.allclose(tiny_output(sparse, tiny_inputs(name)), expected)
    dense_checkpoint(str(tmp_path / "sparse"), tmp_path / "again")
    again = load_model(str(tmp_path / "again"))
    assert type(again) is type(model)
    assert all(torch.equal(again.state_dict()[key], value) for key, value in weights.items())
    torch.testing.assert_close(tiny_output(again, tiny_inputs(name)), expected)
    config = json.loads((tmp_path / "again" / "config.json").read_text())
    assert not {"sparse_hopfield", "base_model_type", "auto_map"} & config.keys()
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize(
    "model_type",
    [
        *("clip", "blip", "videomae", "segformer", "vision-encoder-decoder", "patchtst", "time_series_transformer"),
        *("wav2vec2", "marian", "esm", "speech_to_text", "mixtral", "swin", "siglip_vision_model", "canine"),
    ],
)
def test_families_are_converted_and_verified(model_type, tmp_path):
    changes = {"image_size": 64, "patch_size": 2, "window_size": 4} if model_type == "swin" else {}
    tiny_family(model_type, **changes).save_pretrained(tmp_path / "dense")
    result = convert_checkpoint(str(tmp_path / "dense"), tmp_path / "sparse", {"alpha": 1.5})
    assert result["difference"] < 1e-3
    assert dense_checkpoint(str(tmp_path / "sparse"), tmp_path / "again")["difference"] < 1e-3
    keys = [load_file(tmp_path / name / "model.safetensors").keys() for name in ("dense", "again")]
    assert keys[0] == keys[1]


def test_neither_the_source_nor_foreign_things_are_replaced(source, tmp_path, capsys):
    (tmp_path / "letter.txt").write_text("dear")
    before = sorted(path.name for path in tmp_path.rglob("*"))
    for output, match in (
        (tmp_path, "is the source or contains it"),
        (source, "is the source or contains it"),
        (source / "..", "is the source or contains it"),
    ):
        assert main(["convert", str(source), str(output), "--overwrite"]) == 1
        assert match in capsys.readouterr().err
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("dear")
    assert main(["convert", str(source), str(tmp_path / "other"), "--overwrite"]) == 1
    assert "did not write, or that have changed since: letter.txt" in capsys.readouterr().err
    assert (tmp_path / "other" / "letter.txt").exists()
    assert sorted({path.name for path in tmp_path.rglob("*")} - {"other"}) == sorted(set(before))
    check_output(source / "sparse", overwrite=True, source=str(source))  # inside the source is fine


@pytest.mark.slow
def test_peak_memory_is_near_one_copy(tmp_path):
    """1.2 GB of weights, in several shards and then in one file: the peak above the bare process stays below 1.5 copies."""
    make = (
        "import sys, torch, hf_sparse_hopfield; from transformers import LlamaConfig, LlamaForCausalLM;"
        "config = LlamaConfig(vocab_size=32000, hidden_size=1024, num_hidden_layers=20, num_attention_heads=8,"
        "intermediate_size=2816, max_position_embeddings=64);"
        "LlamaForCausalLM(config).save_pretrained(sys.argv[1], max_shard_size='300MB')"
    )
    measure = (
        "import resource, sys, torch, transformers;"
        "from hf_sparse_hopfield.checkpoints.conversion import convert_checkpoint;"
        "bare = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss;"
        "convert_checkpoint(sys.argv[1], sys.argv[2], {'alpha': 1.5});"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - bare) * 1024)"
    )
    dense, sparse = tmp_path / "dense", tmp_path / "sparse"
    subprocess.run([sys.executable, "-c", make, dense], check=True, cwd=ROOT)
    size = sum(path.stat().st_size for path in dense.glob("*.safetensors"))
    assert len(list(dense.glob("*.safetensors"))) > 3
    done = subprocess.run([sys.executable, "-c", measure, dense, sparse], check=True, cwd=ROOT, capture_output=True)
    peak = int(done.stdout.split()[-1])
    print(f"checkpoint {size / 2**20:.0f} MiB, peak {peak / 2**20:.0f} MiB")
    assert peak < 1.5 * size
    assert len(load_file(sparse / "model.safetensors"))
