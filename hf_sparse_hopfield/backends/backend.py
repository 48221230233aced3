# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The form of a backend."""

from collections.abc import Callable
from dataclasses import dataclass

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
