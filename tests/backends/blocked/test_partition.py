# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The partition into blocks."""

import pytest
import torch

from hf_sparse_hopfield.backends.blocked.layout import Layout
from hf_sparse_hopfield.backends.blocked.partition import UNIT, is_always_dense, key_unit, partition

from .problems import PLAIN


LAYOUTS = [Layout(1, 1, 1, 1, 1), Layout(3, 2, 2, 70, 300), Layout(2, 3, 1, 300, 40), Layout(1, 2, 4, 65, 1000)]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"is_causal": True, "window": 9}])
def test_blocks_cover_each_visible_score_once(layout, options):
    seen = torch.zeros(layout.batch, layout.kv_heads, layout.queries, layout.keys)
    settings = PLAIN._replace(**options)
    for block in partition(layout, settings):
        assert block.first % key_unit(layout, settings) == 0
        seen[block.batches, block.kv_heads, block.queries, block.first : block.stop] += 1
        whole = block.kv_heads == slice(0, layout.kv_heads)
        assert whole or block.batches.stop - block.batches.start == 1
    last = torch.arange(layout.queries)[:, None] + layout.keys - layout.queries
    position = torch.arange(layout.keys)
    visible = position <= last if settings.is_causal else torch.ones(layout.queries, layout.keys, dtype=torch.bool)
    if settings.window:
        visible &= position > last - settings.window
    assert (seen[..., visible] == 1).all()
    assert seen.max() <= 1


@pytest.mark.parametrize("layout", [Layout(0, 1, 1, 1, 1), Layout(1, 1, 1, 0, 5), Layout(1, 1, 1, 5, 0)])
def test_nothing_to_divide(layout):
    assert partition(layout, PLAIN) == []


def test_short_rows_and_softmax_are_always_dense():
    long = Layout(1, 1, 1, 5, UNIT)
    assert not is_always_dense(long, PLAIN) and key_unit(long, PLAIN) == UNIT
    for layout, settings in (
        (Layout(1, 1, 1, 5, UNIT - 1), PLAIN),
        (long, PLAIN._replace(alpha_value=1.0)),
    ):
        assert is_always_dense(layout, settings) and key_unit(layout, settings) == 1
    per_row = PLAIN._replace(alpha=torch.ones(1, 1, 5, 1), alpha_value=0.0)
    assert not is_always_dense(long, per_row)
