# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import pytest
import torch

from hf_sparse_hopfield.calibration.calibration import calibrate
from hf_sparse_hopfield.calibration.comparison import compare_with_dense
from hf_sparse_hopfield.diagnostics import sparsity_report

from ..tiny_models import tiny_model
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
