# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Pieces of dense blocks."""

import pytest
import torch

from hf_sparse_hopfield.backends import blocked
from hf_sparse_hopfield.backends.blocked import dense_pieces as pieces

from ..cases import Case, check


@pytest.mark.parametrize(
    "options", [{}, {"alpha": "head", "beta": "row"}, {"bias": "full", "sinks": True, "softcap": 5.0}]
)
def test_short_rows_of_many_heads(options, monkeypatch):
    """A piece of a dense block has several heads, the last one fewer."""
    monkeypatch.setattr(pieces, "_DENSE_ENTRIES", 300)
    case = Case(batch=3, kv_heads=3, groups=2, queries=5, keys=7, sharpness=0.5, **options)
    assert [heads for heads, _ in pieces.pieces(torch.Size((9, 10, 7)))] == [slice(0, 4), slice(4, 8), slice(8, 9)]
    check(blocked.run, case, torch.float64)


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 7), (2, 700, 900), (40, 30, 1000), (2, 3, 1 << 19)])
def test_pieces_cover_each_row_once(shape):
    seen = torch.zeros(shape[:2])
    for heads, rows in pieces.pieces(torch.Size(shape)):
        seen[heads, rows] += 1
    assert (seen == 1).all()


def test_cut():
    tensor, piece = torch.arange(12).view(3, 4, 1), (slice(1, 3), slice(0, 2))
    assert pieces.cut(tensor, piece).flatten().tolist() == [4, 5, 8, 9]
    assert pieces.cut(0.5, piece) == 0.5
    assert pieces.cut(None, piece) is None
