# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Masks of a problem: which keys a query sees, and stored patterns that no query sees."""

import torch

from .problem import RetrievalProblem


def visible(problem: RetrievalProblem) -> torch.Tensor | None:
    """
    The mask, the causal order and the sliding window of a problem as one mask; `None` if every query sees every key.

    Args:
        problem ([`RetrievalProblem`]): The problem.

    Returns:
        `torch.BoolTensor` broadcastable to `(batch, heads, queries, keys)`, or `None`.

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield.backends import RetrievalProblem
    >>> from hf_sparse_hopfield.backends.masks import visible

    >>> visible(RetrievalProblem(*torch.randn(3, 1, 1, 3, 4), is_causal=True, sliding_window=2)).int()
    tensor([[1, 0, 0],
            [1, 1, 0],
            [0, 1, 1]], dtype=torch.int32)
    ```
    """
    allowed = problem.mask
    if problem.is_causal:
        queries, keys = problem.query.shape[-2], problem.key.shape[-2]
        last = torch.arange(queries, device=problem.query.device)[:, None] + keys - queries
        position = torch.arange(keys, device=problem.query.device)
        causal = position <= last
        if problem.sliding_window is not None:
            causal = causal & (position > last - problem.sliding_window)
        allowed = causal if allowed is None else allowed & causal
    return allowed


def without_unseen(stored: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """
    Stored patterns with zeros in place of those that the mask hides from every query.

    Their weight is zero, but they may hold NaN or infinity, and zero times NaN or infinity is not zero.

    Args:
        stored (`torch.Tensor` of shape `(batch, kv_heads, keys, width)`): Keys or values.
        mask (`torch.BoolTensor` broadcastable to `(batch, heads, queries, keys)`, *optional*):
            `True` where a query may attend.

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield.backends.masks import without_unseen

    >>> mask = torch.tensor([True, False]).view(1, 1, 1, 2)
    >>> without_unseen(torch.tensor([1.0, torch.nan]).view(1, 1, 2, 1), mask).flatten()
    tensor([1., 0.])
    ```
    """
    if mask is None:
        return stored
    kv_heads, keys = stored.shape[1:3]
    seen = mask.any(-2).expand(-1, -1, keys)
    if seen.shape[1] not in (1, kv_heads):
        seen = seen.unflatten(1, (kv_heads, -1)).any(2)
    return stored.masked_fill(~seen.unsqueeze(-1), 0)
