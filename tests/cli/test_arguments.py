# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
from hf_sparse_hopfield import to_sparse_hopfield
from hf_sparse_hopfield.checkpoints import conversion
from hf_sparse_hopfield.cli import main

from ..tiny_models import tiny_model


def test_sparsemax_has_its_own_refinement(source, tmp_path, monkeypatch, capsys):
    seen = []

    def convert_checkpoint(*args, calibration, **kwargs):
        seen.append((calibration["refine_steps"], calibration["learning_rate"]))
        return {}

    monkeypatch.setattr(conversion, "convert_checkpoint", convert_checkpoint)
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
