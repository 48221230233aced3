# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Positions in flat tables."""

import pytest
import torch

from hf_sparse_hopfield.backends.blocked.layout import Block, Layout
from hf_sparse_hopfield.backends.blocked.positions import bias_places, divided, key_places, row_numbers


LAYOUT = Layout(batch=2, kv_heads=3, groups=2, queries=5, keys=7)
BLOCK = Block(slice(1, 2), slice(1, 3), slice(2, 4), 2, 7)


@pytest.mark.parametrize("by", [1, 2, 3, 8, 12])
def test_divided(by):
    numbers = torch.arange(50)
    assert torch.equal(divided(numbers, by), numbers // by)


def test_key_places():
    table = torch.randn(2, 3, 7, 4)
    row, column = torch.tensor([0, 3, 4, 7]), torch.tensor([0, 4, 1, 2])
    places = key_places(LAYOUT, BLOCK, row.clone(), column)
    assert places.dtype == torch.int32
    # four rows per kv head: two groups of two queries
    expected = LAYOUT.stored(table, BLOCK)[row // 4, column]
    assert torch.equal(table.view(-1, 4)[places.long()], expected)


@pytest.mark.parametrize("shape", [(2, 3, 2, 5, 7), (1, 3, 2, 1, 7), (2, 1, 1, 5, 1), (1, 1, 1, 1, 1)])
def test_bias_places(shape):
    bias = torch.randn(shape)
    numbers = row_numbers(LAYOUT, bias.device)
    rows = numbers.expand(*LAYOUT.row_shape, LAYOUT.keys).reshape(-1)
    heads = rows // (LAYOUT.groups * LAYOUT.queries)
    columns = heads * LAYOUT.keys + torch.arange(rows.numel()) % LAYOUT.keys
    places = bias_places(LAYOUT, bias.shape, rows.int(), columns.int())
    expected = bias.expand(*LAYOUT.row_shape, LAYOUT.keys).reshape(-1)
    assert torch.equal(bias.view(-1)[places], expected)
