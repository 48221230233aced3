# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Masks that backends share."""

import pytest
import torch

from hf_sparse_hopfield.backends import RetrievalProblem
from hf_sparse_hopfield.backends.masks import segments_in_mask, visible, without_unseen


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


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("batch", [1, 2])
def test_segments_are_a_part_of_what_is_visible(batch, causal):
    queries, keys = 4, 6
    numbers = torch.randint(3, (batch, queries)), torch.randint(3, (batch, keys))
    mask = torch.rand(2, 1, 1, keys) > 0.3
    for given in (mask, None):
        case = problem(queries, keys, mask=given, segments=numbers, is_causal=causal)
        seen, folded = visible(case), segments_in_mask(case)
        assert folded.segments is None and case.segments is numbers and case.mask is given
        for b in range(2):
            for i in range(queries):
                for j in range(keys):
                    allowed = numbers[0][b % batch, i] == numbers[1][b % batch, j]
                    allowed = allowed & (True if given is None else given[b, 0, 0, j])
                    assert folded.mask[b % folded.mask.shape[0], 0, i, j] == allowed
                    assert seen[b % seen.shape[0], 0, i, j] == (allowed and (not causal or j <= i + keys - queries))
    assert segments_in_mask(problem(mask=mask)).mask is mask


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
