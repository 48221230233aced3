# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The form of a backend."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from ..functional.plain_torch import only_plain_torch
from .masks import segments_in_mask
from .problem import RetrievalProblem, RetrievalResult


@dataclass(frozen=True)
class Backend:
    """
    One way to compute retrieval. Each backend module defines its own as `BACKEND`; the registry lists them.

    Args:
        name (`str`): The name that users pass as `backend=`.
        run (`Callable`): Computes a [`RetrievalProblem`].
        refusal (`Callable`): Says why the backend cannot serve a [`RetrievalProblem`]; `None` if it can.
        priority (`int`): `backend="auto"` tries backends with a higher priority first. No two backends share one.
        reads_places (`bool`, *optional*, defaults to `False`):
            Whether it takes a problem with `places`. For the others, keys and values are brought together first.
        reads_segments (`bool`, *optional*, defaults to `False`):
            Whether it takes a problem with `segments`. For the others they become a part of the mask, in `run`, and
            `refusal` is asked about a problem that has one.
        own_operators (`bool`, *optional*, defaults to `False`):
            Whether it computes with operators that torch does not have. It then refuses in [`plain_torch`].

    Example:

    ```python
    >>> from hf_sparse_hopfield.backends import reference

    >>> reference.BACKEND.name, reference.BACKEND.priority
    ('reference', 0)
    ```
    """

    name: str
    run: Callable[[RetrievalProblem], RetrievalResult]
    refusal: Callable[[RetrievalProblem], str | None]
    priority: int
    reads_places: bool = False
    reads_segments: bool = False
    own_operators: bool = False

    def __post_init__(self) -> None:
        # here, so that nobody who runs or asks a backend can forget them
        if not self.reads_segments:
            run, refusal = self.run, self.refusal
            object.__setattr__(self, "run", lambda problem: run(segments_in_mask(problem)))
            object.__setattr__(self, "refusal", lambda problem: refusal(_as_if_masked(problem)))
        if self.own_operators:
            others = self.refusal
            object.__setattr__(self, "refusal", lambda problem: _no_operators() or others(problem))


def _no_operators() -> str | None:
    return "an export in torch's own operators has no place for its own" if only_plain_torch() else None


def _as_if_masked(problem: RetrievalProblem) -> RetrievalProblem:
    """What a refusal looks at: a mask is there. The mask itself would be as large as the scores."""
    if problem.segments is None:
        return problem
    mask = problem.query.new_empty((1, 1, 1, 1), dtype=torch.bool) if problem.mask is None else problem.mask
    return replace(problem, segments=None, mask=mask)
