# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Pieces of dense blocks, each small enough that its temporaries share the cache."""

from typing import overload

import torch
from torch import Tensor


Piece = tuple[slice, slice]  # of heads, and of rows

# Entries of a piece of a dense block: several temporaries of this size fit the cache.
_DENSE_ENTRIES = 1 << 18


def pieces(shape: torch.Size) -> list[Piece]:
    """Divide a dense block of shape `(kv heads, rows, keys)`."""
    heads, rows, keys = shape
    if heads * rows * keys <= 2 * _DENSE_ENTRIES:
        return [(slice(0, heads), slice(0, rows))]
    step = max(1, min(rows, _DENSE_ENTRIES // keys))
    together = max(1, _DENSE_ENTRIES // (rows * keys))  # short rows: many heads at once
    return [
        (slice(h, min(h + together, heads)), slice(r, min(r + step, rows)))
        for h in range(0, heads, together)
        for r in range(0, rows, step)
    ]


@overload
def cut(setting: Tensor, piece: Piece) -> Tensor: ...
@overload
def cut(setting: float, piece: Piece) -> float: ...
@overload
def cut(setting: None, piece: Piece) -> None: ...
def cut(setting: float | Tensor | None, piece: Piece) -> float | Tensor | None:
    """The part of a setting that concerns a piece; a number concerns all pieces alike."""
    return setting[piece] if isinstance(setting, Tensor) else setting
