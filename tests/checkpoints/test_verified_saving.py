# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from hf_sparse_hopfield import to_sparse_hopfield
from hf_sparse_hopfield.checkpoints import verified_saving as saving
from hf_sparse_hopfield.checkpoints.verified_saving import inputs_to_verify, save_verified

from ..tiny_models import tiny_model


def test_a_failure_leaves_nothing(tmp_path, monkeypatch):
    model = to_sparse_hopfield(tiny_model("bert"))

    def disk_is_full(self, directory, **kwargs):
        Path(directory, "config.json").write_text("{}")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(model), "save_pretrained", disk_is_full)
    with pytest.raises(OSError, match="out.* cannot be written: the disk is full"):
        save_verified([model], None, tmp_path / "out", inputs=None)
    assert list(tmp_path.iterdir()) == []


def test_verification_finds_damage(tmp_path, monkeypatch):
    load = saving.load_model

    def damaged(path, **kwargs):
        model = load(path, **kwargs)
        with torch.no_grad():
            next(model.parameters()).mul_(1.5)
        return model

    monkeypatch.setattr(saving, "load_model", damaged)
    with pytest.raises(RuntimeError, match="verification failed"):
        model = to_sparse_hopfield(tiny_model("bert"))
        save_verified([model], None, tmp_path / "out", inputs=inputs_to_verify(model))
    assert list(tmp_path.iterdir()) == []


def test_nothing_loads_before_it_is_verified(tmp_path, monkeypatch):
    load, seen = saving.load_model, []

    def looking(path, **kwargs):
        with pytest.raises(ValueError, match="Unrecognized model"):
            AutoModelForCausalLM.from_pretrained(path)
        seen.append(path)
        return load(path, **kwargs)

    monkeypatch.setattr(saving, "load_model", looking)
    model = to_sparse_hopfield(tiny_model("llama"))
    save_verified([model], None, tmp_path / "out", inputs=inputs_to_verify(model))
    assert len(seen) == 1 and type(load(str(tmp_path / "out"))) is type(model)
    assert not (tmp_path / "out" / "config.json.unverified").exists()
