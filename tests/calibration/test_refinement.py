# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import pytest
import torch

from hf_sparse_hopfield import CalibrationOptions
from hf_sparse_hopfield.calibration.calibration import calibrate
from hf_sparse_hopfield.calibration.comparison import compare_with_dense
from hf_sparse_hopfield.diagnostics import sparsity_report

from ..tiny_models import sharpened, tiny_model
from .recording import batches_for


@pytest.mark.parametrize("against", ["loss", "dense"])
def test_refining_lowers_what_it_minimises(against):
    batches = [{**batch, "labels": batch["input_ids"]} for batch in batches_for("llama")]
    weights = {name: value.clone() for name, value in tiny_model("llama").state_dict().items()}
    model, plain = calibrate(tiny_model("llama"), batches, alpha=2.0, refine_steps=0, progress=False)
    before = compare_with_dense(model, batches)
    model, report = calibrate(
        tiny_model("llama"), batches, alpha=2.0, refine_steps=12, refine_on=against, progress=False
    )
    after = compare_with_dense(model, batches)
    key = "sparse_loss" if against == "loss" else "divergence"
    assert after[key] < before[key]
    assert len(report.refined) == 12
    measured = sparsity_report(model, batches, rows=10**6)
    assert report.mean("support") == pytest.approx(measured.share, rel=0.1)  # as refined, not as before
    assert all(torch.equal(model.state_dict()[name], value) for name, value in weights.items())
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_mixed_precision_refines_alike():
    reports = []
    for bf16 in (False, True):
        options = {"alpha": 1.5, "refine_steps": 6, "bf16": bf16, "progress": False}
        reports.append(calibrate(sharpened(tiny_model("llama"), 6.0), batches_for("llama"), **options)[1])
    full, mixed = reports
    assert full.refined != mixed.refined
    assert mixed.mean("beta") == pytest.approx(full.mean("beta"), rel=0.05)
    with pytest.raises(TypeError, match="bf16 must be"):
        CalibrationOptions(bf16="yes")
