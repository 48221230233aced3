# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""beta as a function of the number of keys that a query sees.

Sparse weights concentrate as rows grow longer, so one beta cannot be right for rows of ten keys and of thousands. A head with
`length_power` p has the beta `beta * (keys / 256) ** p` in a row that sees so many keys. Backends know nothing of it: they get
the beta of each row.
"""

from dataclasses import replace

import torch

from .masks import visible
from .problem import RetrievalProblem


# The number of visible keys at which beta is what it says. Saved models depend on it.
REFERENCE_KEYS = 256

_ROWS_AT_ONCE = 1024  # whose full masks are made together, where counting needs them


def visible_counts(problem: RetrievalProblem) -> int | torch.Tensor:
    """
    The number of keys that each query sees.

    Args:
        problem ([`RetrievalProblem`]): The problem, in canonical form.

    Returns:
        `int`, or `torch.Tensor` broadcastable to `(batch, heads, queries, 1)`.

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield.backends import RetrievalProblem
    >>> from hf_sparse_hopfield.backends.lengths import visible_counts

    >>> visible_counts(RetrievalProblem(*torch.randn(3, 1, 1, 4, 8), is_causal=True, sliding_window=3)).flatten()
    tensor([1, 2, 3, 3])
    ```
    """
    queries = problem.query.shape[2]
    keys = problem.key.shape[2] if problem.places is None else problem.places.shape[1]
    mask, window = problem.mask, problem.sliding_window
    if problem.segments is not None or (mask is not None and mask.shape[2] > 1):
        return _counted(problem)
    if mask is not None:
        seen = mask.expand(-1, -1, -1, keys)
        if not problem.is_causal:
            return seen.sum(-1, keepdim=True)
        upto = torch.nn.functional.pad(seen.cumsum(-1), (1, 0))  # how many of the first n keys are visible
    elif not problem.is_causal:
        return keys
    elif queries == 1:
        return keys if window is None else min(keys, window)
    else:
        upto = torch.arange(keys + 1, device=problem.query.device).view(1, 1, 1, -1)
    end = torch.arange(queries, device=problem.query.device) + (keys - queries + 1)
    counts = upto[..., end.clamp_min(0)]
    if window is not None:
        counts = counts - upto[..., (end - window).clamp_min(0)]
    return counts.mT


def _counted(problem: RetrievalProblem) -> torch.Tensor:
    """The counts where only a full mask says what a query sees: some rows at a time, without the mask of all."""
    if problem.is_causal or problem.segments is not None:
        keys = problem.key.shape[2]
        segments = problem.segments
        counts = []
        offset = keys - problem.query.shape[2]
        for start in range(0, problem.query.shape[2], _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            query = problem.query[:, :, rows]
            stop = start + query.shape[2] + offset  # bottom right, as causality is aligned
            cut = slice(0, stop) if problem.is_causal else slice(0, keys)
            mask = problem.mask
            if mask is not None:
                mask = (mask if mask.shape[2] == 1 else mask[:, :, rows]).expand(-1, -1, -1, keys)[..., cut]
            some = replace(
                problem,
                query=query,
                key=problem.key[:, :, cut],
                mask=mask,
                segments=None if segments is None else (segments[0][:, rows], segments[1][:, cut]),
            )
            allowed = visible(some)
            assert allowed is not None
            counts.append(allowed.reshape((1,) * (4 - allowed.ndim) + allowed.shape).sum(-1, keepdim=True))
        return torch.cat(counts, 2)
    assert problem.mask is not None
    return problem.mask.expand(-1, -1, -1, problem.key.shape[2]).sum(-1, keepdim=True)


def length_factor(
    counts: int | torch.Tensor, power: float | torch.Tensor, dtype: torch.dtype = torch.float32
) -> float | torch.Tensor:
    """
    What beta is multiplied with in rows of so many visible keys.

    Args:
        counts (`int` or `torch.Tensor`): Visible keys of each row.
        power (`float` or `torch.Tensor`): `length_power`; broadcasts with `counts`.
        dtype (`torch.dtype`, *optional*, defaults to `torch.float32`): Of the result.

    Example:

    ```python
    >>> from hf_sparse_hopfield.backends.lengths import length_factor

    >>> length_factor(1024, -0.5)
    0.5
    ```
    """
    if not isinstance(counts, torch.Tensor):
        return (max(counts, 1) / REFERENCE_KEYS) ** power
    return (counts.clamp_min(1).to(dtype) / REFERENCE_KEYS) ** power


def with_row_beta(problem: RetrievalProblem) -> RetrievalProblem:
    """
    A problem in which the beta of each row includes its length. The problem itself if it does not depend on it.

    Args:
        problem ([`RetrievalProblem`]): The problem, in canonical form.
    """
    power = problem.length_power
    if type(power) is float and power == 0.0:
        return problem
    dtype = torch.float64 if problem.query.dtype == torch.float64 else torch.float32
    factor = length_factor(visible_counts(problem), power, dtype)
    return replace(problem, beta=problem.beta * factor, length_power=0.0)
