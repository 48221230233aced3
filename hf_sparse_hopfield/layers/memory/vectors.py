# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Checks of the vectors that a memory stores and is asked for, and of the places of stored ones."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ...checks import is_integer


def checked_patterns(patterns: Tensor) -> Tensor:
    """Patterns without a gradient, or an error that says what is wrong with them."""
    if not isinstance(patterns, Tensor) or not patterns.is_floating_point():
        given = patterns.dtype if isinstance(patterns, Tensor) else type(patterns).__name__
        raise TypeError(f"patterns must be a floating point tensor of shape (M, d), got {given}; use .float().")
    if patterns.dim() != 2 or patterns.shape[1] == 0:
        raise ValueError(f"patterns must have shape (M, d) with d > 0, got {tuple(patterns.shape)}.")
    if not torch.isfinite(patterns).all():
        raise ValueError("patterns must be finite: a single NaN or infinity spoils every retrieval.")
    return patterns.detach()


def more_patterns(patterns: Tensor, dimension: int, like: Tensor) -> Tensor:
    """Patterns to add to others, `like` them in dtype and device; one may come without its first dimension."""
    if isinstance(patterns, Tensor) and patterns.dim() == 1:
        patterns = patterns.unsqueeze(0)
    if isinstance(patterns, Tensor) and patterns.is_floating_point():
        patterns = patterns.to(like)  # before the check: another dtype may make it infinite
    patterns = checked_patterns(patterns)
    if patterns.shape[1] != dimension:
        raise ValueError(f"patterns must have width {dimension}, like the stored ones, got {tuple(patterns.shape)}.")
    return patterns


def checked_queries(queries: Tensor, dimension: int, dtype: torch.dtype, stored: int) -> Tensor:
    """Queries to a memory of `stored` patterns, or an error that says what is wrong with them."""
    if not isinstance(queries, Tensor):
        raise TypeError(f"queries must be a tensor of shape (..., {dimension}), got {type(queries).__name__}.")
    if queries.dtype != dtype:
        raise TypeError(f"queries have dtype {queries.dtype}, the patterns {dtype}; convert one of them.")
    if queries.dim() == 0 or queries.shape[-1] != dimension:
        raise ValueError(f"queries must have shape (..., {dimension}), got {tuple(queries.shape)}.")
    if stored == 0:
        raise ValueError("the memory is empty; store patterns with add() first.")
    return queries


def to_unit_length(vectors: Tensor) -> Tensor:
    """Vectors scaled to length 1, in their dtype."""
    # In float16, squares overflow easily.
    precise = vectors.to(torch.promote_types(vectors.dtype, torch.float32))
    return nn.functional.normalize(precise, dim=-1).to(vectors.dtype)


def checked_rows(rows: Tensor, count: int) -> Tensor:
    """A copy of the names of so many patterns, or an error that says what is wrong with them."""
    if not isinstance(rows, Tensor) or rows.dtype != torch.long or rows.shape != (count,):
        given = (rows.dtype, tuple(rows.shape)) if isinstance(rows, Tensor) else type(rows).__name__
        raise TypeError(
            f"rows must be a torch.long tensor of shape ({count},), one name for each pattern, got {given}."
        )
    if count and int(rows.min()) < 0:
        raise ValueError(f"rows must not be negative, got {int(rows.min())}.")
    return rows.detach().clone()


def chosen_places(indices: int | Sequence[int] | Tensor, count: int) -> Tensor:
    """
    The places that indices of stored patterns mean.

    Args:
        indices (`int`, sequence of `int`, or `torch.Tensor`):
            Negative ones count from the end. A boolean tensor of shape `(count,)` marks places.
        count (`int`): Number of stored patterns.

    Returns:
        `torch.LongTensor`: The places, on the CPU, in ascending order and each once.
    """
    if isinstance(indices, Tensor):
        indices = indices.cpu()
        if indices.dtype == torch.bool:
            if indices.shape != (count,):
                raise ValueError(f"a boolean indices must have shape {(count,)}, got {tuple(indices.shape)}.")
            return indices.nonzero().flatten()
        if indices.is_floating_point() or indices.is_complex():
            raise TypeError(f"indices must be integers or booleans, got a tensor of {indices.dtype}.")
        places = indices.flatten().long()
    else:
        listed = [indices] if isinstance(indices, int) else list(indices)
        for index in listed:
            if not is_integer(index):
                raise TypeError(f"indices must be integers or a boolean tensor, got {index!r}.")
        places = torch.tensor(listed, dtype=torch.long)
    outside = (places < -count) | (places >= count)
    if outside.any():
        raise IndexError(f"indices contains {int(places[outside][0])}, but the memory holds {count} patterns.")
    return torch.where(places < 0, places + count, places).unique()
