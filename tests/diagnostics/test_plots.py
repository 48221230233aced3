# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import pytest

from hf_sparse_hopfield import to_sparse_hopfield
from hf_sparse_hopfield.diagnostics import (
    SparsityReport,
    plot_associations,
    plot_sparsity,
    record_associations,
    sparsity_report,
)

from ..tiny_models import tiny_inputs, tiny_model


def test_dead_heads_are_in_the_legend():
    layer = dict.fromkeys(("alpha", "beta", "share", "entropy", "support", "keys"), [1.0, 2.0])
    report = SparsityReport({"first": {**layer, "dead": [False, True]}})
    assert [text.get_text() for text in plot_sparsity(report).legends[0].get_texts()] == ["dead head"]
    assert not plot_sparsity(SparsityReport({"first": {**layer, "dead": [False, False]}})).legends


def test_pictures(tmp_path):
    model = to_sparse_hopfield(tiny_model("bert"), {"beta": 3.0})
    inputs = tiny_inputs("bert")
    report = sparsity_report(model, [inputs])
    plot_sparsity(report, tmp_path / "heads.png")
    weights = next(iter(record_associations(model, inputs).values()))
    figure = plot_associations(weights[0], tmp_path / "weights.png", query_labels=list("abcdefghi"))
    bars = [axis for axis in figure.axes if axis.get_label() == "<colorbar>"]
    assert [bar.get_ylabel() for bar in bars] == ["weight (white: exactly zero)"]
    for name in ("heads.png", "weights.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="one sample"):
        plot_associations(weights)
