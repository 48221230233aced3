# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import json

import pytest
import torch

from hf_sparse_hopfield import to_sparse_hopfield
from hf_sparse_hopfield.diagnostics import (
    plot_associations,
    plot_sparsity,
    record_associations,
    sparsity_report,
    write_html_report,
)

from ..tiny_models import tiny_inputs, tiny_model


@pytest.mark.parametrize("name", ["bert", "llama", "bloom", "t5", "vit"])
def test_associations_are_the_weights(name):
    model = to_sparse_hopfield(tiny_model(name), {"alpha": 1.5})
    inputs = tiny_inputs(name)
    weights = record_associations(model, inputs)
    for weight in weights.values():
        torch.testing.assert_close(weight.sum(-1), torch.ones(weight.shape[:3]), rtol=1e-4, atol=1e-4)
    outputs = model(**inputs, output_attentions=True)
    if name != "t5":
        for weight, expected in zip(weights.values(), outputs.attentions, strict=True):
            torch.testing.assert_close(weight, expected, rtol=1e-4, atol=1e-5)


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


def test_pictures(tmp_path):
    model = to_sparse_hopfield(tiny_model("bert"), {"beta": 3.0})
    inputs = tiny_inputs("bert")
    report = sparsity_report(model, [inputs])
    plot_sparsity(report, tmp_path / "heads.png")
    weights = next(iter(record_associations(model, inputs).values()))
    plot_associations(weights[0], tmp_path / "weights.png", query_labels=list("abcdefghi"))
    write_html_report(report, tmp_path / "report.html", "A & B")
    for name in ("heads.png", "weights.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    text = (tmp_path / "report.html").read_text()
    assert "A &amp; B" in text and text.count("<tr>") == 9 and "data:image/png;base64," in text
    with pytest.raises(ValueError, match="one sample"):
        plot_associations(weights)
