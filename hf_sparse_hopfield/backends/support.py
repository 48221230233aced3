# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The support of the rows of one head: the keys that have weight, without a weight for every key."""

import dataclasses

import torch
from torch import Tensor

from . import native
from .masks import segments_in_mask
from .problem import RetrievalProblem
from .registry import find_backend


_WEIGHTS_AT_ONCE = 2**25  # numbers, where the weights of all keys have to be formed


def row_supports(problem: RetrievalProblem) -> Tensor:
    """
    The keys that have weight in a retrieval of one step.

    Args:
        problem ([`RetrievalProblem`]):
            The problem, with a batch of 1, one head, and settings that are the same for all queries. Queries may be in float32
            where keys are in half precision.

    Returns:
        `torch.LongTensor` of shape `(queries, most)`: The keys of each query in ascending order, then -1.

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield.backends import RetrievalProblem
    >>> from hf_sparse_hopfield.backends.support import row_supports

    >>> query, key = torch.tensor([[[[9.0, 0.0, 0.0, 0.0], [0.0, 5.0, 5.0, 0.0]]]]), torch.eye(4)[None, None]
    >>> row_supports(RetrievalProblem(query, key, key, scaling=1.0))
    tensor([[ 0, -1],
            [ 1,  2]])

    ```
    """
    problem = segments_in_mask(problem)
    with torch.no_grad():
        if native.refusal(problem) is not None:
            return _from_weights(problem, problem.query)
        found, missing = native.kept_support(problem)
        if missing.any():
            both = _padded([found, _from_weights(problem, problem.query[:, :, missing])])
            found, rest = both[: len(missing)], both[len(missing) :]
            found[missing] = rest.clone()
        return _ascending(found, problem.key.shape[2])


def _from_weights(problem: RetrievalProblem, query: Tensor) -> Tensor:
    """The supports of some queries, from the weights of all keys, a few queries at a time."""
    together = max(1, _WEIGHTS_AT_ONCE // max(1, problem.key.shape[2]))
    found = []
    for some in query.split(together, 2):
        key = problem.key.to(query.dtype)
        part = dataclasses.replace(problem, query=some, key=key, value=key, return_weights=True)
        weights = find_backend(part).run(part).weights
        assert weights is not None
        found.append(_columns(weights[0, 0] > 0))
    return _padded(found)


def _columns(marked: Tensor) -> Tensor:
    """The columns of each row that are marked, then -1."""
    width = marked.shape[1]
    columns = torch.arange(width, device=marked.device).expand(marked.shape).masked_fill(~marked, -1)
    most = int(marked.sum(-1).max()) if marked.numel() else 0
    return _ascending(columns, width)[:, :most]


def _ascending(columns: Tensor, width: int) -> Tensor:
    """Sort the columns of each row, with -1 last."""
    ordered = columns.masked_fill(columns < 0, width).sort(-1).values
    return ordered.masked_fill(ordered == width, -1)


def _padded(parts: list[Tensor]) -> Tensor:
    """Rows of different widths below each other."""
    most = max(part.shape[1] for part in parts)
    return torch.cat([torch.nn.functional.pad(part, (0, most - part.shape[1]), value=-1) for part in parts])
