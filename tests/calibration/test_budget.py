# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import pytest

from hf_sparse_hopfield.calibration.calibration import calibrate
from hf_sparse_hopfield.calibration.comparison import compare_with_dense

from ..tiny_models import tiny_model
from .recording import batches_for


def test_budget_is_kept():
    batches = [{**batch, "labels": batch["input_ids"]} for batch in batches_for("llama")]
    model, report = calibrate(tiny_model("llama"), batches, budget=0.01, progress=False)
    compared = compare_with_dense(model, batches)
    assert compared["sparse_loss"] <= 1.01 * compared["dense_loss"] + 1e-4
    assert report.budget["sparse_loss"] == pytest.approx(compared["sparse_loss"], rel=1e-3)
    _, wide = calibrate(tiny_model("llama"), batches, budget=0.5, progress=False)
    assert wide.mean("alpha") >= report.mean("alpha")
    _, refined = calibrate(tiny_model("llama"), batches, budget=0.01, refine_steps=2, progress=False)
    within = refined.budget["sparse_loss"] <= 1.01 * refined.budget["dense_loss"]
    assert within == (not refined.warnings)
    _, unlabelled = calibrate(tiny_model("llama"), batches_for("llama"), budget=0.01, progress=False)
    assert unlabelled.budget["divergence"] <= 0.01


def test_a_budget_that_cannot_be_kept_is_an_error():
    batches = batches_for("llama")
    with pytest.raises(ValueError, match=r"budget=1e-09 cannot be kept: with an error of 0\.000\d+ per head"):
        calibrate(tiny_model("llama"), batches, budget=1e-9, progress=False)


def test_the_dense_model_is_measured_once(monkeypatch):
    batches = [{**batch, "labels": batch["input_ids"]} for batch in batches_for("llama")]
    model, runs = tiny_model("llama"), []
    model.register_forward_hook(lambda *_: runs.append(1))
    calibrate(model, batches, budget=0.01, progress=False)
    assert len(runs) == 2 * (1 + 1 + 5)  # the search, the dense loss, five sparse ones
