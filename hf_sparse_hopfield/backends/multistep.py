# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The updates of the state that precede the read-out."""

from collections.abc import Callable

import torch
from torch import Tensor

from .problem import RetrievalProblem


def last_state(problem: RetrievalProblem, state: Tensor, update: Callable[[Tensor], Tensor]) -> Tensor:
    """
    The state that the read-out starts from: each row after `problem.steps - 1` updates, or fewer if it comes to rest.

    Args:
        problem ([`RetrievalProblem`]): Sets the number of steps and the tolerance at which a row stops.
        state (`torch.Tensor` of shape `(batch, heads, queries, head_dim)`): The initial state.
        update (`Callable`): Evaluates the normalizer and reads out the keys.

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield.backends import RetrievalProblem
    >>> from hf_sparse_hopfield.backends.multistep import last_state

    >>> state = torch.tensor([8.0, 1.0]).view(1, 1, 2, 1)
    >>> problem = RetrievalProblem(state, state, state, steps=4, tolerance=0.75)
    >>> last_state(problem, state, lambda state: state / 2).flatten()
    tensor([1.0000, 0.5000])

    ```
    """
    active = None
    for _ in range(problem.steps - 1):
        new = update(state)
        moved = (new - state).detach().float().norm(dim=-1, keepdim=True) if problem.tolerance else None
        state = new if active is None else torch.where(active, new, state)
        if moved is not None:
            moving = ~(moved < problem.tolerance)  # a row with NaN counts as moving
            active = moving if active is None else active & moving
    return state
