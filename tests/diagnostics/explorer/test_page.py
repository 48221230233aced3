# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""What the page holds, without a browser."""

import json
import re

import pytest
import torch
from torch import nn

from hf_sparse_hopfield import SparseHopfieldPooling, to_sparse_hopfield
from hf_sparse_hopfield.diagnostics import sparsity_report, write_explorer
from hf_sparse_hopfield.diagnostics.explorer import recording

from ...tiny_models import tiny_inputs, tiny_model


def data_of(path) -> dict:
    return json.loads(
        re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text(), re.DOTALL)[1]
    )


def test_the_page_is_one_file_with_the_figures_of_the_report(tmp_path):
    model = to_sparse_hopfield(tiny_model("llama"), {"alpha": [1.2, 1.4, 1.6, 1.8], "beta": 3.0, "length_power": 0.5})
    with torch.no_grad():
        model.model.layers[1].self_attn.q_proj.weight[:8] = 0  # a head that sees all keys alike
    inputs = tiny_inputs("llama")
    write_explorer(model, inputs, tmp_path / "page.html")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    assert not re.search(
        r"(https?:)?//[a-z]", (tmp_path / "page.html").read_text().replace("http://www.w3.org/2000/svg", "")
    )
    report = sparsity_report(model, [{"input_ids": inputs["input_ids"][:1]}], rows=10**6)
    data = data_of(tmp_path / "page.html")
    assert [layer["name"] for layer in data["layers"]] == list(report.layers)
    for layer, expected in zip(data["layers"], report.layers.values(), strict=True):
        assert layer["alpha"] == pytest.approx(expected["alpha"]) and layer["length_power"] == [0.5] * 4
        assert layer["support"] == pytest.approx(expected["support"], rel=1e-5)
        assert layer["entropy"]["sparse"] == pytest.approx(expected["entropy"], rel=1e-5)
        assert [reason is not None for reason in layer["dead"]] == expected["dead"]
    assert data["layers"][1]["dead"][0] == "uniform" and data["cut"] == {"sparse": False, "dense": False}


def test_layers_that_run_several_times_and_models_made_of_layers(tmp_path):
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pool = SparseHopfieldPooling(8, num_heads=2, quantity=3)

        def forward(self, x):
            return self.pool(x) + self.pool(2 * x)

    write_explorer(Twice(), {"x": torch.randn(2, 5, 8)}, tmp_path / "page.html")
    data = data_of(tmp_path / "page.html")
    assert [layer["name"] for layer in data["layers"]] == ["pool.hopfield", "pool.hopfield, run 2"]
    assert [data["streams"][data["layers"][0][side]]["labels"] for side in ("queries", "keys")] == [
        ["0", "1", "2"],
        ["0", "1", "2", "3", "4"],
    ]


def test_what_cannot_be_shown_is_refused(tmp_path, monkeypatch):
    model, inputs = to_sparse_hopfield(tiny_model("bert")), tiny_inputs("bert")
    monkeypatch.setattr(recording, "MOST_POSITIONS", 8)
    with pytest.raises(ValueError, match="at most 8 positions .* has 9 queries"):
        write_explorer(model, inputs, tmp_path / "page.html")
    monkeypatch.undo()
    model.bert.encoder.layer[0].attention.self.query.weight.data.fill_(torch.nan)
    with pytest.raises(ValueError, match=r"layer\.0\..*NaN"):
        write_explorer(model, inputs, tmp_path / "page.html")
    assert not list(tmp_path.iterdir())
