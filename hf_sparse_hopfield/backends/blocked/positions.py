# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Flat positions of the entries of supports in tables of rows, of keys and of the bias."""

import torch
from torch import Tensor

from .layout import Block, Layout


def divided(numbers: Tensor, by: int) -> Tensor:
    """`numbers // by` for numbers that are not negative. For a power of two a shift is three times as fast."""
    return numbers >> by.bit_length() - 1 if by & (by - 1) == 0 else numbers // by


def row_numbers(layout: Layout, device: torch.device) -> Tensor:
    """The number of each row, as a grouped tensor."""
    batch, kv_heads, groups, queries = layout.row_shape
    return torch.arange(batch * kv_heads * groups * queries, device=device).view(*layout.row_shape, 1)


def key_places(layout: Layout, block: Block, row: Tensor, column: Tensor) -> Tensor:
    """
    Positions in the table of all keys, `(batch * kv_heads * keys, ...)`.

    Args:
        layout, block: The block that the entries belong to.
        row, column (`torch.LongTensor` of shape `(n,)`): Entries, relative to the first row and key of the block.
    """
    # A block has whole batch entries or some heads of one, so its kv heads are consecutive in the table.
    first = (block.batches.start * layout.kv_heads + block.kv_heads.start) * layout.keys + block.first
    head = divided(row, layout.groups * (block.queries.stop - block.queries.start))
    return head.mul_(layout.keys).add_(column).add_(first).int()


def bias_places(layout: Layout, shape: torch.Size, rows: Tensor, columns: Tensor) -> Tensor:
    """
    Positions in a contiguous grouped bias.

    Args:
        layout ([`Layout`]): The sizes of the problem.
        shape (`torch.Size`): Shape of the grouped bias; sizes may be 1.
        rows (`torch.Tensor` of shape `(n,)`): Row numbers of the entries.
        columns (`torch.Tensor` of shape `(n,)`): Positions of the entries in the table of all keys.
    """
    sizes = (*layout.row_shape, layout.keys)
    rows = rows.long()
    places = [columns.long() % layout.keys]
    for size in (layout.queries, layout.groups, layout.kv_heads):
        places.insert(0, rows % size)
        rows = rows // size
    places.insert(0, rows)
    flat, stride = torch.zeros_like(rows), 1
    for place, size, extent in zip(reversed(places), reversed(sizes), reversed(shape), strict=True):
        if extent == size and size > 1:
            flat += place * stride
            stride *= size
    return flat
