# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Scores of blocks against scores computed at once."""

import pytest
import torch

from hf_sparse_hopfield.backends.blocked.layout import Layout
from hf_sparse_hopfield.backends.blocked.partition import partition
from hf_sparse_hopfield.backends.blocked.scores import Scores

from .problems import PLAIN


OPTIONS = {
    "plain": {},
    "factor": {"factor": 0.7},
    "beta": {"beta": torch.rand(2, 4, 20, 1, dtype=torch.float64) + 0.5},
    "softcap": {"factor": 0.7, "softcap": 1.5},
    "bias": {"bias": torch.randn(1, 4, 20, 150, dtype=torch.float64)},
    "mask": {"mask": torch.rand(2, 1, 1, 150) > 0.5},
    "causal": {"is_causal": True, "window": 30},
}


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("name", OPTIONS)
def test_blocks(name):
    settings = PLAIN._replace(**OPTIONS[name])
    query, key = torch.randn(2, 4, 20, 8, dtype=torch.float64), torch.randn(2, 2, 150, 8, dtype=torch.float64)
    expected = query @ key.repeat_interleave(2, 1).transpose(-1, -2) * settings.scaling
    if settings.softcap:
        expected = settings.softcap * torch.tanh(expected / settings.softcap)
    expected = expected * (settings.factor if settings.beta is None else settings.beta)
    if settings.bias is not None:
        expected = expected + settings.bias
    if settings.mask is not None:
        expected = expected.masked_fill(~settings.mask, -torch.inf)
    if settings.is_causal:
        position, last = torch.arange(150), torch.arange(20)[:, None] + 130
        visible = (position <= last) & (position > last - settings.window)
        expected = expected.masked_fill(~visible, -torch.inf)
    layout = Layout.of(query, key)
    scores = Scores(layout, query, key, settings)
    assert scores.may_have_empty_rows == (name in ("bias", "mask"))
    for block in partition(layout, settings):
        z = scores.of(block, query.new_empty(layout.score_count(block)))
        assert z.shape[-1] == block.stop - block.first
        real = layout.key_count(block)
        right = layout.part(layout.grouped(expected), block)
        torch.testing.assert_close(layout.grouped_scores(z, block)[..., :real], right)
        assert (z[..., real:] == -torch.inf).all()


def test_more_queries_than_keys_leave_rows_empty():
    query, key = torch.randn(1, 1, 5, 8), torch.randn(1, 1, 3, 8)
    settings = PLAIN._replace(is_causal=True)
    assert Scores(Layout.of(query, key), query, key, settings).may_have_empty_rows


def test_capped():
    query, key = torch.randn(1, 1, 5, 8), torch.randn(1, 1, 9, 8)
    settings = PLAIN._replace(softcap=1.5, factor=3.0)
    layout = Layout.of(query, key)
    (block,) = partition(layout, settings)
    expected = torch.tanh(query @ key.transpose(-1, -2) * settings.scaling / 1.5)
    torch.testing.assert_close(Scores(layout, query, key, settings).capped(block), expected[0])
