# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The causal mask of a block."""

import pytest
import torch

from hf_sparse_hopfield.backends.blocked.causal import CausalMask
from hf_sparse_hopfield.backends.blocked.layout import Block, Layout


@pytest.mark.parametrize("poison", [0.0, torch.nan])
@pytest.mark.parametrize("window", [0, 1, 4])
@pytest.mark.parametrize(("queries", "keys"), [(6, 6), (4, 9), (9, 4)])
def test_hides_what_a_query_may_not_see(queries, keys, window, poison):
    layout = Layout(1, 1, 1, queries, keys)
    query = torch.randn(1, 1, 1, queries, 3)
    mask = CausalMask(layout, window, query + poison, torch.randn(1, 1, keys, 3))
    block = Block(slice(0, 1), slice(0, 1), slice(1, queries), 1, keys)
    scores = torch.randn(1, 1, 1, queries - 1, keys - 1) + poison
    result = scores.clone()
    mask.hide(result, block)
    last = torch.arange(1, queries)[:, None] + keys - queries
    position = torch.arange(1, keys)
    hidden = position > last
    if window:
        hidden |= position <= last - window
    torch.testing.assert_close(result, scores.masked_fill(hidden, -torch.inf), equal_nan=True)
