# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Grouped tensors and the parts of them that a block covers."""

import pytest
import torch

from hf_sparse_hopfield.backends.blocked.layout import Block, Layout


LAYOUT = Layout(batch=2, kv_heads=3, groups=2, queries=5, keys=7)
BLOCKS = [
    Block(slice(0, 2), slice(0, 3), slice(0, 5), 0, 7),
    Block(slice(1, 2), slice(1, 3), slice(2, 4), 2, 10),
]


def test_of_tensors():
    assert Layout.of(torch.empty(2, 6, 5, 8), torch.empty(2, 3, 7, 8)) == LAYOUT
    assert LAYOUT.row_shape == (2, 3, 2, 5)


def test_grouped():
    assert LAYOUT.grouped(torch.empty(2, 6, 5, 8)).shape == (2, 3, 2, 5, 8)
    assert LAYOUT.grouped(torch.empty(1, 1, 5, 1)).shape == (1, 1, 1, 5, 1)


@pytest.mark.parametrize("block", BLOCKS)
def test_store_is_the_inverse_of_rows(block):
    tensor = torch.randn(*LAYOUT.row_shape, 4)
    rows = LAYOUT.rows(tensor, block)
    expected = tensor[block.batches, block.kv_heads, :, block.queries]
    assert torch.equal(rows.reshape(expected.shape), expected)
    copy = torch.zeros_like(tensor)
    LAYOUT.store(copy, block, rows)
    assert torch.equal(LAYOUT.rows(copy, block), rows)
    assert copy.count_nonzero() == rows.numel()


@pytest.mark.parametrize("block", BLOCKS)
def test_keys_of_a_block(block):
    table = torch.randn(2, 3, 7, 4)
    stored = LAYOUT.stored(table, block)
    assert stored.shape[1] == LAYOUT.key_count(block)
    assert torch.equal(stored[0], table[block.batches.start, block.kv_heads.start, block.first : block.stop])
    heads = stored.shape[0]
    queries = block.queries.stop - block.queries.start
    assert LAYOUT.score_count(block) == heads * LAYOUT.groups * queries * (block.stop - block.first)


def test_part_keeps_dimensions_of_size_one():
    bias = torch.randn(1, 1, 1, 5, 7)
    part = LAYOUT.part(bias, BLOCKS[1])
    assert part.shape == (1, 1, 1, 2, 5)
    assert torch.equal(part[0, 0, 0], bias[0, 0, 0, 2:4, 2:])
    scores = torch.randn(2, 4, 5)
    assert LAYOUT.grouped_scores(scores, BLOCKS[1]).shape == (1, 2, 2, 2, 5)
