# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
from hf_sparse_hopfield import to_sparse_hopfield
from hf_sparse_hopfield.calibration import calibration
from hf_sparse_hopfield.cli.main import main

from ..tiny_models import tiny_model


def test_sparsemax_has_its_own_refinement(tmp_path, monkeypatch):
    seen = []

    def refine(model, batches, refiner, refinement, *args, **kwargs):
        seen.append((refinement.steps, refinement.learning_rate, len(batches)))
        return []

    monkeypatch.setattr(calibration, "refine", refine)
    usual, sparsemax = (32, 0.05, 32), (64, 0.1, 64)
    source = tmp_path / "dense"
    tiny_model("llama").save_pretrained(source)
    for alpha in (1.5, 2.0):
        to_sparse_hopfield(tiny_model("llama"), {"alpha": alpha}).save_pretrained(tmp_path / str(alpha))
    settings = {"alpha": 1.5, "overrides": {0: {"alpha": [2.0, 1.9, 1.8, 1.8]}, 1: {"alpha": 2.0}}}
    to_sparse_hopfield(tiny_model("llama"), settings).save_pretrained(tmp_path / "searched")
    few = ["--random", "--length", "4", "--rows", "4", "--search_batches", "1", "--overwrite", "--no_verify"]
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
        assert main([command, str(origin), str(tmp_path / "out"), *alpha, *few]) == 0
        assert seen[-1] == expected
    assert len(seen) == 9
