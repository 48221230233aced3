# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import json

import pytest
import torch

from hf_sparse_hopfield import (
    SparseHopfieldForMultipleInstanceClassification,
    SparseHopfieldMultipleInstanceConfig,
    to_sparse_hopfield,
)
from hf_sparse_hopfield.diagnostics import layer_sparsity, record_associations, sparsity_report

from ..tiny_models import tiny_inputs, tiny_model


def test_report_counts():
    model = to_sparse_hopfield(tiny_model("llama"), {"alpha": 2.0, "beta": 4.0, "steps": 2})
    inputs = tiny_inputs("llama")
    report = sparsity_report(model, [inputs])
    weights = record_associations(model, inputs)
    length = inputs["input_ids"].shape[1]
    for name, layer in report.layers.items():
        support = (weights[name] > 0).sum(-1).float().mean((0, 2))
        torch.testing.assert_close(torch.tensor(layer["support"]), support)
        assert layer["keys"] == pytest.approx([(length + 1) / 2] * 4)
        assert layer["steps"] == [2] * 4 and layer["beta"] == [4.0] * 4
        entropy = torch.special.entr(weights[name]).sum(-1).mean((0, 2))
        torch.testing.assert_close(torch.tensor(layer["entropy"]), entropy, rtol=1e-4, atol=1e-5)
    total = sum((weight > 0).sum() for weight in weights.values())
    assert report.share == pytest.approx(float(total) / (2 * 2 * 4 * length * (length + 1) / 2))
    assert json.loads(report.to_json_string())["share"] == pytest.approx(report.share)


def test_dead_heads():
    model = tiny_model("bert")
    attention = model.bert.encoder.layer[0].attention.self
    with torch.no_grad():  # the first head sees all keys alike
        attention.query.weight[:8] = 0
        attention.query.bias[:8] = 0
    report = sparsity_report(to_sparse_hopfield(model, {"beta": 6.0}), [tiny_inputs("bert")])
    assert ("bert.encoder.layer.0.attention.self", 0) in report.dead_heads
    assert len(report.dead_heads) < 4


def test_dense_models_are_refused():
    with pytest.raises(ValueError, match="to_sparse_hopfield"):
        sparsity_report(tiny_model("bert"), [tiny_inputs("bert")])
    with pytest.raises(ValueError, match="empty"):
        sparsity_report(to_sparse_hopfield(tiny_model("bert")), [])


@pytest.mark.parametrize("name", ["llama", "bloom"])
def test_the_short_form_counts_alike(name):
    model = to_sparse_hopfield(tiny_model(name), {"alpha": 2.0, "beta": [1.0, 2.0, 4.0, 8.0]})
    report = sparsity_report(model, [tiny_inputs(name)], rows=10**6)
    for layer, short in layer_sparsity(model, [tiny_inputs(name)], rows=10**6).items():
        full = report.layers[layer]
        assert short["alpha"] == [2.0] and short["beta"] == full["beta"] == [1.0, 2.0, 4.0, 8.0]
        assert short["support"] == pytest.approx(full["support"])
        assert short["entropy"] == pytest.approx(full["entropy"])
        assert short["zero_share"] == pytest.approx([1 - share for share in full["share"]])


def test_models_made_of_layers_are_reported():
    model = SparseHopfieldForMultipleInstanceClassification(SparseHopfieldMultipleInstanceConfig(input_size=16))
    batch = {"instances": torch.randn(2, 10, 16), "labels": torch.tensor([0, 1])}
    report = sparsity_report(model, [batch])
    assert list(report.layers) == ["aggregation.hopfield"]
    assert report.layers["aggregation.hopfield"]["keys"] == [10.0] * 8 and report.loss > 0
