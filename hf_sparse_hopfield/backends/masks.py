# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The forms of a mask: as users and models give it, as backends take it, and as one mask of all that limits a query."""

from dataclasses import replace

import torch

from .problem import RetrievalProblem


# Models mask with -inf, with the lowest number of some dtype (-65504 for float16) or with -1e4, and sometimes add
# these up. All of them mean weight zero, even in a row where everything is masked. No real score is that low.
MASKED_BELOW = -9e3


def _canonical_scores(name: str, tensor: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """A mask or bias with four dimensions, broadcastable to the scores."""
    if tensor.ndim > 4 or any(s not in (1, n) for s, n in zip(reversed(tensor.shape), reversed(shape), strict=False)):
        raise ValueError(
            f"{name} of shape {tuple(tensor.shape)} does not broadcast to (batch, heads, queries, keys) = {shape}."
        )
    return tensor.reshape((1,) * (4 - tensor.ndim) + tensor.shape)


def canonical_mask(
    mask: torch.Tensor | None, bias: torch.Tensor | None, shape: tuple[int, ...]
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """
    The boolean mask and the additive bias that backends take. An additive mask is split into the two.

    Args:
        mask (`torch.Tensor`, *optional*): Boolean (`True` = may attend) or added to the scores.
        bias (`torch.Tensor`, *optional*): Added to the scores.
        shape (`tuple[int, ...]`): Shape of the scores, `(batch, heads, queries, keys)`.

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield.backends.masks import canonical_mask

    >>> canonical_mask(torch.tensor([0.5, -torch.inf]), None, (1, 1, 1, 2))
    (tensor([[[[ True, False]]]]), tensor([[[[0.5000, 0.0000]]]]))

    ```
    """
    if bias is not None:
        if not isinstance(bias, torch.Tensor) or not bias.is_floating_point():
            raise TypeError(
                f"bias must be a floating point tensor, got {getattr(bias, 'dtype', type(bias).__name__)}."
            )
        bias = _canonical_scores("bias", bias, shape)
    if mask is None:
        return None, bias
    if not isinstance(mask, torch.Tensor) or not (mask.dtype == torch.bool or mask.is_floating_point()):
        raise TypeError(
            "mask must be boolean (True = may attend) or a floating point tensor that is added to the scores, got "
            f"{getattr(mask, 'dtype', type(mask).__name__)}. Use `mask.bool()` for a mask of ones and zeros."
        )
    mask = _canonical_scores("mask", mask, shape)
    if mask.dtype == torch.bool:
        return mask, bias
    allowed = ~(mask <= MASKED_BELOW)
    additive = mask.masked_fill(~allowed, 0)
    if bias is None:
        return allowed, additive
    dtype = torch.promote_types(torch.promote_types(bias.dtype, mask.dtype), torch.float32)  # do not round the sum
    return allowed, bias.to(dtype) + additive


def visible(problem: RetrievalProblem) -> torch.Tensor | None:
    """
    The mask, the segments, the causal order and the sliding window of a problem as one mask; `None` if every query sees every
    key.

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
    allowed = segments_in_mask(problem).mask
    if problem.is_causal:
        queries, keys = problem.query.shape[-2], problem.key.shape[-2]
        last = torch.arange(queries, device=problem.query.device)[:, None] + keys - queries
        position = torch.arange(keys, device=problem.query.device)
        causal = position <= last
        if problem.sliding_window is not None:
            causal = causal & (position > last - problem.sliding_window)
        allowed = causal if allowed is None else allowed & causal
    return allowed


def segments_in_mask(problem: RetrievalProblem) -> RetrievalProblem:
    """
    A problem without segments: its mask says what they say. The problem itself if it has none.

    Args:
        problem ([`RetrievalProblem`]): The problem, in canonical form.

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield.backends import RetrievalProblem
    >>> from hf_sparse_hopfield.backends.masks import segments_in_mask

    >>> numbers = torch.tensor([[1, 1, 2]], dtype=torch.int32)
    >>> segments_in_mask(RetrievalProblem(*torch.randn(3, 1, 1, 3, 4), segments=(numbers, numbers))).mask.int()
    tensor([[[[1, 1, 0],
              [1, 1, 0],
              [0, 0, 1]]]], dtype=torch.int32)
    ```
    """
    if problem.segments is None:
        return problem
    queries, keys = problem.segments
    same = (queries[:, :, None] == keys[:, None, :])[:, None]
    return replace(problem, segments=None, mask=same if problem.mask is None else problem.mask & same)


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
