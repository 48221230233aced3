# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Masks that backends share."""

import pytest
import torch

from hf_sparse_hopfield.backends import RetrievalProblem
from hf_sparse_hopfield.backends.masks import visible, without_unseen


def problem(queries: int = 4, keys: int = 6, **options) -> RetrievalProblem:
    shapes = ((1, 2, queries, 3), (1, 1, keys, 3), (1, 1, keys, 3))
    return RetrievalProblem(*(torch.randn(shape) for shape in shapes), scaling=1.0, **options)


def test_every_key_is_visible_by_default():
    assert visible(problem()) is None


@pytest.mark.parametrize(("queries", "keys"), [(4, 6), (5, 5), (6, 4)])
@pytest.mark.parametrize("window", [None, 1, 3])
def test_causal_order_window_and_mask_together(queries, keys, window):
    mask = torch.rand(1, 2, queries, keys) > 0.3
    seen = visible(problem(queries, keys, mask=mask, is_causal=True, sliding_window=window))
    for i in range(queries):
        for j in range(keys):
            last = i + keys - queries
            allowed = j <= last and (window is None or j > last - window)
            assert torch.equal(seen[..., i, j], mask[..., i, j] & allowed)


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_patterns_that_no_query_sees_become_zero(heads):
    stored = torch.full((2, 2, 5, 3), torch.nan)
    mask = torch.zeros(2, heads, 4, 5, dtype=torch.bool)
    mask[0, 0, 2, 1] = True  # seen by one query of the first head: by its kv head, or by all of them
    result = without_unseen(stored, mask)
    expected = torch.zeros_like(stored)
    expected[0, slice(None) if heads == 1 else 0, 1] = torch.nan
    torch.testing.assert_close(result, expected, equal_nan=True)
    assert without_unseen(stored, None) is stored
