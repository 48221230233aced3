# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import json

from hf_sparse_hopfield.checkpoints import load_tokenizer
from hf_sparse_hopfield.cli import main

from ..tiny_models import tiny_model


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


def test_a_damaged_checkpoint_is_told(source, tmp_path, capsys):
    weights = source / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert main(["convert", str(source), str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: ") and repr(str(weights)) in error
    assert not (tmp_path / "out").exists()
