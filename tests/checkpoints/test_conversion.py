# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, CLIPImageProcessor, LlavaProcessor, ViTImageProcessor

from hf_sparse_hopfield import to_sparse_hopfield
from hf_sparse_hopfield.checkpoints import conversion as checkpoints
from hf_sparse_hopfield.checkpoints.conversion import (
    convert_checkpoint,
    dense_checkpoint,
    inputs_to_verify,
    load_model,
    load_tokenizer,
    save_verified,
)
from hf_sparse_hopfield.cli.main import main
from hf_sparse_hopfield.demo import make_tokenizer
from hf_sparse_hopfield.demo.text import TEXT
from hf_sparse_hopfield.files import check_output
from hf_sparse_hopfield.hub.push import model_card

from ..tiny_families import tiny_family
from ..tiny_models import SPECIFICATIONS, tiny_inputs, tiny_model, tiny_output


ROOT = Path(__file__).parents[2]


@pytest.fixture
def source(tmp_path):
    """A dense checkpoint with a tokenizer, and a text for it."""
    tokenizer = make_tokenizer()
    directory = tmp_path / "dense"
    tiny_model("llama", vocab_size=len(tokenizer)).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    (tmp_path / "text.txt").write_text(TEXT)
    return directory


def leftovers(directory):
    return [path.name for path in directory.iterdir() if path.name.startswith(".")]


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


def test_convert_command_with_calibration(source, tmp_path, capsys):
    output = tmp_path / "sparse"
    arguments = ["convert", str(source), str(output), "--alpha", "1.5", "--text", str(tmp_path / "text.txt")]
    arguments += ["--length", "32", "--batches", "4", "--refine_steps", "3", "--json"]
    assert main(arguments) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["model"] == "SparseHopfieldLlamaForCausalLM" and result["layers"] == 2
    assert result["calibration"]["refined"] == 3
    assert set(result["comparison"]) == {"divergence", "cosine", "dense_loss", "sparse_loss"}
    written = {path.name for path in output.iterdir()}
    assert {"model.safetensors", "config.json", "README.md", "calibration.json", "tokenizer.json"} <= written
    card = (output / "README.md").read_text()
    assert "library_name: transformers" in card and "sparse-hopfield" in card and "model.layers.0.self_attn" in card
    assert str(tmp_path) not in json.dumps(json.loads((output / "config.json").read_text()))
    assert AutoModelForCausalLM.from_pretrained(output).config.sparse_hopfield.alpha == 1.5

    assert main(arguments) == 1
    assert "--overwrite" in capsys.readouterr().err
    assert main([*arguments, "--overwrite"]) == 0
    capsys.readouterr()
    calibrated = [str(output), str(tmp_path / "calibrated"), "--text", str(tmp_path / "text.txt"), "--length", "32"]
    assert main(["calibrate", *calibrated, "--objective", "support", "--target_support", "0.3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["calibration"]["mean_support"] == pytest.approx(0.3, abs=0.05)


def test_budget_command(source, tmp_path, capsys):
    text = ["--text", str(tmp_path / "text.txt"), "--length", "32", "--batches", "2"]
    assert main(["convert", str(source), str(tmp_path / "b"), "--budget", "0.02", *text, "--json"]) == 0
    compared = json.loads(capsys.readouterr().out)["comparison"]
    assert compared["sparse_loss"] <= 1.02 * compared["dense_loss"]


@pytest.mark.parametrize("name, layers", [("vit", ["--layers", "1"]), ("t5", [])])
def test_random_inputs(name, layers, tmp_path, capsys):
    tiny_model(name).save_pretrained(tmp_path / name)
    arguments = [str(tmp_path / name), str(tmp_path / "out"), "--random", "--batches", "2"]
    arguments += ["--length", "16", "--refine_steps", "2"]
    assert main(["convert", *arguments, *layers, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["calibration"]["refined"] == 2 and result["comparison"]["cosine"] > 0.5
    settings = load_model(str(tmp_path / "out")).config.sparse_hopfield
    assert settings.layers == ([1] if layers else None)
    assert len(settings.overrides) == result["layers"] == (1 if layers else 6)  # t5: two decoder layers have two each


def test_errors_are_told_before_work(source, tmp_path, capsys):
    output = str(tmp_path / "out")
    assert main(["convert", str(source), output, "--alpha", "search"]) == 1
    assert "--text" in capsys.readouterr().err
    assert main(["calibrate", str(source), output]) == 1
    assert main(["convert", str(tmp_path / "nothing"), output]) == 1
    error = capsys.readouterr().err
    assert "nothing" in error and "Traceback" not in error
    assert main(["convert", str(source), output, "--text", str(tmp_path / "no.txt")]) == 1
    assert main(["convert", str(source), output, "--to_dense"]) == 1
    assert "dense already" in capsys.readouterr().err
    assert main(["convert", str(source), output, "--to_dense", "--beta", "2"]) == 1
    assert "--beta" in capsys.readouterr().err
    for name, value in {
        **{
            "refine_steps": 3,
            "refine_on": "loss",
            "learning_rate": 0.1,
            "max_error": 0.05,
            "rows": 64,
            "objective": "kl",
        },
        **{"target_support": 0.5, "search_batches": 8, "seed": 0, "length": 512, "batches": 3, "batch_size": 1},
    }.items():
        assert main(["convert", str(source), output, f"--{name}", str(value)]) == 1
        assert f"--{name} needs something to calibrate on" in capsys.readouterr().err
    text = ["--text", str(tmp_path / "text.txt")]
    for wrong, match in (
        (["--max_error", "0.1"], "--max_error is for --alpha search"),
        (["--max_error", "0.1", "--budget", "0.1"], "--max_error is for --alpha search without --budget"),
        (["--refine_steps", "0", "--learning_rate", "0.1"], "--learning_rate is for refining"),
        (["--budget", "0.1", "--refine_on", "loss"], "--refine_on is for refining"),
    ):
        assert main(["convert", str(source), output, *text, *wrong]) == 1
        assert match in capsys.readouterr().err
    with pytest.raises(ValueError, match="refine_steps"):
        main(["convert", str(source), output, "--refine_steps", "3", "--debug"])
    with pytest.raises(SystemExit) as stop:
        main(["convert", str(source), output, "--alpha", "much"])
    assert stop.value.code == 2
    assert not Path(output).exists() and leftovers(tmp_path) == []


def test_a_full_disk_leaves_nothing(source, tmp_path):
    output = tmp_path / "out"
    command = [sys.executable, ROOT / "conversion" / "convert_dense_to_sparse.py", source, output]

    def limited():  # a limit on the size of files stops writing just as a full disk does, in the middle of the weights
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))

    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, cwd=ROOT, preexec_fn=limited
    )
    assert done.returncode == 1
    assert "error: " in done.stderr and "File too large" in done.stderr and "Traceback" not in done.stderr
    assert not output.exists() and leftovers(tmp_path) == []


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


def test_where_no_inputs_can_be_made_it_is_told_at_once(tmp_path, capsys, monkeypatch):
    tiny_family("bros").save_pretrained(tmp_path / "dense")  # wants the boxes of words
    arguments = ["convert", str(tmp_path / "dense"), str(tmp_path / "out")]
    monkeypatch.setattr(checkpoints, "calibrate", lambda *args, **kwargs: pytest.fail("too late"))
    assert main([*arguments, "--random", "--refine_steps", "0"]) == 1
    error = capsys.readouterr().err
    assert "no random inputs could be made that SparseHopfieldBrosModel takes" in error and "--no_verify" in error
    assert main([*arguments, "--no_verify"]) == 0


def test_a_broken_tokenizer_is_told(source, tmp_path, capsys):
    (source / "tokenizer.json").write_text("{broken")
    assert main(["convert", str(source), str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert "tokenizer.json" in error and "does not load" in error and not (tmp_path / "out").exists()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (source / name).unlink()
    assert load_tokenizer(str(source)) is None
    assert main(["convert", str(source), str(tmp_path / "out")]) == 0


def test_a_checkpoint_without_its_architecture_loses_no_weights(source, tmp_path, capsys):
    config = json.loads((source / "config.json").read_text())
    del config["architectures"]
    (source / "config.json").write_text(json.dumps(config))
    assert main(["convert", str(source), str(tmp_path / "out")]) == 1
    assert "architectures=None" in (error := capsys.readouterr().err) and "lm_head.weight" in error
    tiny_model("llama").model.save_pretrained(tmp_path / "base")
    config = json.loads((tmp_path / "base" / "config.json").read_text())
    del config["architectures"]
    (tmp_path / "base" / "config.json").write_text(json.dumps(config))
    assert main(["convert", str(tmp_path / "base"), str(tmp_path / "out"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["model"] == "SparseHopfieldLlamaModel"


def test_what_other_libraries_keep_beside_is_kept(source, tmp_path):
    """Files of sentence-transformers, as MiniLM has them."""
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "secret").write_text("not of the checkpoint")
    modules = [{"idx": 0, "path": "", "type": "Transformer"}, {"idx": 1, "path": "1_Pooling", "type": "Pooling"}]
    modules += [{"idx": 3, "path": "../beside", "type": "Dense"}, {"idx": 4, "path": "..", "type": "Dense"}]
    kept = {
        "modules.json": json.dumps([*modules, {"idx": 2, "path": "2_Dense", "type": "Dense"}]),
        "sentence_bert_config.json": '{"max_seq_length": 256}',
        "config_sentence_transformers.json": "{}",
        "1_Pooling/config.json": '{"pooling_mode_mean_tokens": true}',
        "2_Dense/model.safetensors": "weights",
        "LICENSE": "free",
    }
    left = {"pytorch_model.bin": "old", "onnx/model.onnx": "dense", "README.md": "# MiniLM", ".hidden": "x"}
    for name, text in {**kept, **left}.items():
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_text(text)
    convert_checkpoint(str(source), tmp_path / "new" / "sparse", {"alpha": 1.5})
    dense_checkpoint(str(tmp_path / "new" / "sparse"), tmp_path / "new" / "again")
    for directory in ("sparse", "again"):
        for name, text in kept.items():
            assert (tmp_path / "new" / directory / name).read_text() == text
        assert not any((tmp_path / "new" / directory / name).exists() for name in left if name != "README.md")
    assert not (tmp_path / "new" / "again" / "README.md").exists()  # it was about the sparse model
    assert not list((tmp_path / "new" / "again").glob("*.py"))
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["again", "sparse"]


def test_processors_are_asked_for_their_tokenizer(tmp_path, capsys):
    tokenizer = make_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"]})
    text_config = {**SPECIFICATIONS["llava"][2]["text_config"], "vocab_size": len(tokenizer)}
    image_token_id = tokenizer.convert_tokens_to_ids("<image>")
    tiny_model("llava", text_config=text_config, image_token_id=image_token_id).save_pretrained(tmp_path / "llava")
    image_processor = CLIPImageProcessor(size={"shortest_edge": 8}, crop_size={"height": 8, "width": 8})
    LlavaProcessor(image_processor, tokenizer, patch_size=4).save_pretrained(tmp_path / "llava")
    (tmp_path / "text.txt").write_text("to be or not to be " * 40)
    text = ["--text", str(tmp_path / "text.txt"), "--length", "12", "--batches", "2", "--refine_steps", "0", "--json"]
    result = main(["convert", str(tmp_path / "llava"), str(tmp_path / "out"), "--layers", "language_model", *text])
    captured = capsys.readouterr()
    assert result == 0, captured.err
    assert "warnings" not in json.loads(captured.out)["calibration"]
    assert main(["convert", str(tmp_path / "llava"), str(tmp_path / "two"), *text]) == 0
    assert "do not reach 2 of the 4" in json.loads(capsys.readouterr().out)["calibration"]["warnings"][0]

    tiny_model("vit").save_pretrained(tmp_path / "vit")
    ViTImageProcessor(size={"height": 8, "width": 8}).save_pretrained(tmp_path / "vit")
    assert main(["convert", str(tmp_path / "vit"), str(tmp_path / "three"), *text]) == 1
    assert "no tokenizer" in capsys.readouterr().err


def test_sparsemax_has_its_own_refinement(source, tmp_path, monkeypatch, capsys):
    seen = []

    def convert_checkpoint(*args, calibration, **kwargs):
        seen.append((calibration["refine_steps"], calibration["learning_rate"]))
        return {}

    monkeypatch.setattr(checkpoints, "convert_checkpoint", convert_checkpoint)
    usual, sparsemax = (32, 0.05), (64, 0.1)
    for alpha in (1.5, 2.0):
        to_sparse_hopfield(tiny_model("llama"), {"alpha": alpha}).save_pretrained(tmp_path / str(alpha))
    settings = {"alpha": 1.5, "overrides": {0: {"alpha": [2.0, 1.9, 1.8, 1.8]}, 1: {"alpha": 2.0}}}
    to_sparse_hopfield(tiny_model("llama"), settings).save_pretrained(tmp_path / "searched")
    for command, origin, alpha, expected in (
        ("convert", source, ["--alpha", "1.5"], usual),
        ("convert", source, [], sparsemax),
        ("convert", source, ["--alpha", "search"], usual),
        ("calibrate", tmp_path / "1.5", [], usual),
        ("calibrate", tmp_path / "1.5", ["--alpha", "2"], sparsemax),
        ("calibrate", tmp_path / "2.0", [], sparsemax),
        ("calibrate", tmp_path / "2.0", ["--alpha", "search"], usual),
        ("calibrate", tmp_path / "searched", [], sparsemax),
        ("calibrate", source, [], sparsemax),
    ):
        assert main([command, str(origin), str(tmp_path / "out"), *alpha, "--random"]) == 0
        assert seen[-1] == expected


def test_a_damaged_checkpoint_is_told(source, tmp_path, capsys):
    weights = source / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert main(["convert", str(source), str(tmp_path / "out")]) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("error: ")
    assert not (tmp_path / "out").exists()


def test_a_failure_leaves_nothing(tmp_path, monkeypatch):
    model = to_sparse_hopfield(tiny_model("bert"))

    def disk_is_full(self, directory, **kwargs):
        Path(directory, "config.json").write_text("{}")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(model), "save_pretrained", disk_is_full)
    with pytest.raises(OSError, match="No space"):
        save_verified([model], None, tmp_path / "out", inputs=None)
    assert list(tmp_path.iterdir()) == []


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
    assert "no config.json" in capsys.readouterr().err
    assert (tmp_path / "other" / "letter.txt").exists()
    assert sorted({path.name for path in tmp_path.rglob("*")} - {"other"}) == sorted(set(before))
    check_output(source / "sparse", overwrite=True, source=str(source))  # inside the source is fine


def test_verification_finds_damage(tmp_path, monkeypatch):
    load = checkpoints.load_model

    def damaged(path, **kwargs):
        model = load(path, **kwargs)
        with torch.no_grad():
            next(model.parameters()).mul_(1.5)
        return model

    monkeypatch.setattr(checkpoints, "load_model", damaged)
    with pytest.raises(RuntimeError, match="verification failed"):
        model = to_sparse_hopfield(tiny_model("bert"))
        save_verified([model], None, tmp_path / "out", inputs=inputs_to_verify(model))
    assert list(tmp_path.iterdir()) == []


def test_nothing_loads_before_it_is_verified(tmp_path, monkeypatch):
    load, seen = checkpoints.load_model, []

    def looking(path, **kwargs):
        with pytest.raises(ValueError, match="Unrecognized model"):
            AutoModelForCausalLM.from_pretrained(path)
        seen.append(path)
        return load(path, **kwargs)

    monkeypatch.setattr(checkpoints, "load_model", looking)
    model = to_sparse_hopfield(tiny_model("llama"))
    save_verified([model], None, tmp_path / "out", inputs=inputs_to_verify(model))
    assert len(seen) == 1 and type(load(str(tmp_path / "out"))) is type(model)
    assert not (tmp_path / "out" / "config.json.unverified").exists()


def test_a_killed_conversion_cleans_up(source, tmp_path):
    (tmp_path / "long.txt").write_text(TEXT * 40)
    output = tmp_path / "out"
    command = [sys.executable, ROOT / "conversion" / "convert_dense_to_sparse.py", source, output]
    command += ["--text", tmp_path / "long.txt", "--length", "64", "--refine_steps", "1000000"]
    process = subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True, cwd=ROOT)
    time.sleep(8)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 130
    assert "interrupted" in process.stderr.read()
    assert not output.exists() and leftovers(tmp_path) == []


def test_a_killed_calibration_goes_on_where_it_was(source, tmp_path, capsys):
    (tmp_path / "long.txt").write_text(TEXT * 20)
    state = tmp_path / "state"

    def arguments(output, *more):
        arguments = ["convert", source, tmp_path / output, "--alpha", "1.5", "--text", tmp_path / "long.txt"]
        arguments += ["--length", "32", "--batches", "20", "--refine_steps", "40", *more]
        return list(map(str, arguments))

    def config(output):
        return json.loads((tmp_path / output / "config.json").read_text())["sparse_hopfield"]

    command = [sys.executable, "-m", "hf_sparse_hopfield.cli", *arguments("killed", "--resume_from", state)]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
    while not (state.exists() and torch.load(state, weights_only=True).get("refining")):
        assert process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.wait()
    assert torch.load(state, weights_only=True)["refining"]["steps"] < 40
    assert not (tmp_path / "killed").exists()
    assert main(arguments("killed", "--resume_from", state)) == 0
    assert main(arguments("whole")) == 0
    assert config("killed") == config("whole")


@pytest.mark.parametrize("script", sorted(path.name for path in (ROOT / "conversion").glob("*.py")))
def test_help_of_the_scripts(script):
    done = subprocess.run(
        [sys.executable, ROOT / "conversion" / script, "--help"], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert "examples:" in done.stdout and "--overwrite" in done.stdout


def test_model_card_names_a_hub_id_but_no_path(tmp_path):
    model = to_sparse_hopfield(tiny_model("bert"), {"alpha": 1.5})
    card = model_card(model, base_model="owner/name", comparison={"cosine": 0.99})
    assert card.data.base_model == "owner/name" and "0.99" in card.text
    assert model_card(model, base_model=str(tmp_path)).data.base_model is None
    card = model_card(model, command=f"convert {tmp_path}/in out --text={tmp_path}/text.txt --alpha=1.5")
    assert "convert in out --text=text.txt --alpha=1.5" in card.text and str(tmp_path) not in card.text


def test_push_uploads_what_was_written(source, tmp_path, monkeypatch, capsys):
    pushed = []

    def push_folder(folder, repo_id, private):
        pushed.append((repo_id, private, sorted(os.listdir(folder))))
        return "https://hub/commit"

    monkeypatch.setattr("hf_sparse_hopfield.hub.push.push_folder", push_folder)
    arguments = [str(source), str(tmp_path / "out"), "--push_to_hub", "me/mine", "--private", "--json"]
    assert main(["convert", *arguments]) == 0
    assert json.loads(capsys.readouterr().out)["pushed"] == "https://hub/commit"
    assert pushed[0][:2] == ("me/mine", True) and {"README.md", "model.safetensors"} <= set(pushed[0][2])
    arguments = [str(source), str(tmp_path / "two"), "--push_to_hub", "me/mine", "--json"]
    assert main(["convert", *arguments]) == 0 and pushed[1][1] is None  # up to the owner's settings
    for wrong, match in ((["--push_to_hub", "a/b/c"], "a/b/c"), (["--private"], "--push_to_hub")):
        capsys.readouterr()
        assert main(["convert", str(source), str(tmp_path / "three"), *wrong]) == 1
        assert match in capsys.readouterr().err and not (tmp_path / "three").exists()


@pytest.mark.slow
def test_peak_memory_is_near_one_copy(tmp_path):
    """1.2 GB of weights in several shards: the peak above the bare process stays below 1.5 copies."""
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
    assert len(load_file(next(sparse.glob("*.safetensors"))))
