# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import pytest
import torch

from hf_sparse_hopfield import to_sparse_hopfield
from hf_sparse_hopfield.calibration.calibration import calibrate
from hf_sparse_hopfield.calibration.comparison import compare_with_dense
from hf_sparse_hopfield.diagnostics import sparsity_report
from hf_sparse_hopfield.integration.binding import LayerRetrieval

from ..tiny_families import tiny_family
from ..tiny_models import tiny_inputs, tiny_model
from .recording import batches_for


@pytest.mark.parametrize("name", ["gpt_neo", "gptj", "bloom", "mpnet"])
def test_masked_scores_give_finite_gradients(name):
    model = tiny_family("gpt_neo") if name == "gpt_neo" else tiny_model(name)
    model = to_sparse_hopfield(model, {"alpha": 1.5, "learn_beta": True, "learn_alpha": True})
    inputs = tiny_inputs("llama", length=12)
    direction = torch.randn(model(**inputs)[0].shape[-1])

    def value():
        return (model(**inputs)[0].double() @ direction.double()).sum()

    value().backward()
    learned = {name: value.grad for name, value in model.named_parameters() if ".sparse_hopfield." in name}
    assert all(gradient.isfinite().all() and gradient.abs().sum() > 0 for gradient in learned.values())
    layer = next(module for module in model.modules() if isinstance(module, LayerRetrieval))
    values, step = layer.log_beta, 1e-2
    with torch.no_grad():
        values[0] += step
        above = value()
        values[0] -= 2 * step
        below = value()
    assert values.grad[0].item() == pytest.approx((above - below).item() / (2 * step), rel=0.05)


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
