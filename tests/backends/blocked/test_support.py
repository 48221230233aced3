# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Supports against those of the normalizers."""

import pytest
import torch

from hf_sparse_hopfield.backends.blocked.solver import Rows
from hf_sparse_hopfield.backends.blocked.support import find_support, first_bounds, group_maxima
from hf_sparse_hopfield.functional import entmax, threshold


@pytest.mark.parametrize("sink", [False, True])
@pytest.mark.parametrize("per_row", [False, True])
@pytest.mark.parametrize("alpha", [1.2, 1.5, 2.0])
def test_find_support(alpha, per_row, sink):
    scores = torch.randn(10, 512, dtype=torch.float64) * 30
    scores[3] = -torch.inf
    sinks = scores[:, :1].clamp_min(-50) + 20 if sink else None
    eps = torch.full((10, 1), alpha - 1, dtype=torch.float64) if per_row else alpha - 1
    bounds, support = find_support(Rows(scores, eps, sinks))
    whole = scores if sinks is None else torch.cat([scores, sinks], -1)
    expected = entmax(whole, alpha)
    dense = torch.zeros_like(scores)
    dense[support.row, support.column] = support.weight
    torch.testing.assert_close(dense, expected[:, :512])
    assert torch.equal(support.counts, torch.bincount(support.row, minlength=10))
    assert (support.row.diff() >= 0).all()
    if sinks is not None:
        torch.testing.assert_close(support.sink_weight.flatten(), expected[:, 512])
    exact = (threshold(whole, alpha) + 1) / (alpha - 1) - bounds.origin
    full = bounds.maximum > -torch.inf
    assert (bounds.shift <= exact + 1e-11)[full].all()


def test_a_large_support_is_left_to_the_dense_way():
    bounds, support = find_support(Rows(torch.randn(10, 512) * 1e-3, 1.0))
    assert support is None and bounds.shift.shape == (10, 1)


def test_one_long_row_among_short_ones_goes_the_dense_way():
    scores = torch.randn(200, 512) * 50
    scores[0] = 0
    assert find_support(Rows(scores, 1.0))[1] is None
    assert find_support(Rows(scores[1:], 1.0))[1] is not None


def test_first_bounds():
    scores = torch.tensor([[1.0, 3.0], [-torch.inf, -torch.inf]])
    bounds = first_bounds(Rows(scores, 1.0), scores.amax(-1, keepdim=True))
    assert bounds.maximum.flatten().tolist() == [3.0, -torch.inf]
    assert bounds.origin.flatten().tolist() == [3.0, 0.0]
    sink = torch.tensor([[5.0], [2.0]])
    assert first_bounds(Rows(scores, 1.0, sink), scores.amax(-1, keepdim=True)).origin.flatten().tolist() == [5.0, 2.0]


@pytest.mark.parametrize("keys", [128, 256, 512, 1024])
def test_group_maxima(keys):
    scores = torch.randn(3, keys)
    maxima = group_maxima(scores)
    groups = maxima.shape[1]
    assert groups >= 32
    for group in range(groups):
        assert torch.equal(maxima[:, group], scores[:, group::groups].amax(1))
