# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The certificate of screening: what bounds exclude has no weight, whatever the scores within the bounds are."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_sparse_hopfield.functional import entmax, may_have_weight


@given(
    seed=st.integers(0, 2**20),
    keys=st.integers(1, 60),
    width=st.sampled_from([0.0, 1e-3, 0.3, 3.0]),
    sharpness=st.sampled_from([0.01, 1.0, 30.0]),
    alpha=st.one_of(st.sampled_from([1.0, 1.5, 2.0]), st.floats(1.001, 2.0)),
    ties=st.booleans(),
    masked=st.booleans(),
)
@settings(max_examples=300)
def test_nothing_with_weight_is_excluded(seed, keys, width, sharpness, alpha, ties, masked):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(8, keys, generator=generator, dtype=torch.float64) * sharpness
    if ties:
        scores = scores.round()
    if masked:
        scores[torch.rand(scores.shape, generator=generator) < 0.3] = -torch.inf
    below, above = torch.rand(2, *scores.shape, generator=generator, dtype=torch.float64) * width
    candidates = may_have_weight(scores - below, scores + above, alpha)
    has_weight = entmax(scores, alpha) > 0
    assert not (has_weight & ~candidates).any()
    if width == 0.0 and alpha > 1.01:  # nothing but what has weight is left, up to the edge of the support
        sharp = entmax(scores, alpha) > 1e-9
        assert (candidates.sum() - sharp.sum()) <= 8 * 2 or ties


def test_alpha_of_each_row_and_rows_without_keys():
    scores = torch.tensor([[3.0, 1.9, 0.0], [3.0, 1.9, 0.0], [-torch.inf] * 3])
    alpha = torch.tensor([[2.0], [1.0], [1.5]])
    assert may_have_weight(scores, scores, alpha).tolist() == [[True, False, False], [True] * 3, [False] * 3]
