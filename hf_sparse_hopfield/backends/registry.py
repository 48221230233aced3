# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The list of backends, which is fixed at import, and the choice of one for a problem."""

from . import blocked, dense, native, reference, triton
from .backend import Backend
from .problem import RetrievalProblem


# In the order in which `"auto"` tries them. A tuple: no call can change it while another one selects.
BACKENDS: tuple[Backend, ...] = tuple(
    sorted(
        (module.BACKEND for module in (blocked, dense, native, reference, triton)),
        key=lambda backend: backend.priority,
        reverse=True,
    )
)


def available_backends() -> list[str]:
    """
    Names of the backends, in the order in which `"auto"` tries them.

    Example:

    ```python
    >>> from hf_sparse_hopfield.backends import available_backends

    >>> available_backends()
    ['dense', 'native', 'triton', 'blocked', 'reference']
    ```
    """
    return [backend.name for backend in BACKENDS]


def find_backend(problem: RetrievalProblem, name: str = "auto") -> Backend:
    """
    The backend for a problem.

    Args:
        problem ([`RetrievalProblem`]): The problem, in canonical form.
        name (`str`, *optional*, defaults to `"auto"`): The name of a backend, or `"auto"` for the first that applies.

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield.backends import RetrievalProblem
    >>> from hf_sparse_hopfield.backends.registry import find_backend

    >>> find_backend(RetrievalProblem(*torch.randn(3, 1, 2, 5, 4), scaling=0.5, alpha=1.0)).name
    'dense'
    ```
    """
    if name != "auto":
        return _backend_called(name, problem)
    for backend in BACKENDS:
        if backend.refusal(problem) is None:
            return backend
    raise RuntimeError("no backend serves this call.")  # `reference` never refuses


def select_backend(problem: RetrievalProblem, name: str = "auto") -> tuple[Backend, str]:
    """
    The backend for a problem, and why it is chosen.

    Args:
        problem ([`RetrievalProblem`]): The problem, in canonical form.
        name (`str`, *optional*, defaults to `"auto"`): The name of a backend, or `"auto"` for the first that applies.

    Returns:
        `tuple[Backend, str]`: The backend, and the reason for the choice.

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield.backends import RetrievalProblem, select_backend

    >>> problem = RetrievalProblem(*torch.randn(3, 1, 2, 5, 4), scaling=0.5, alpha=1.0)
    >>> backend, reason = select_backend(problem)
    >>> backend.name, reason
    ('dense', 'the first choice applies')
    ```
    """
    chosen = find_backend(problem, name)
    if name != "auto":
        return chosen, "asked for by name"
    before = BACKENDS[: BACKENDS.index(chosen)]
    refusals = "; ".join(f"{backend.name}: {backend.refusal(problem)}" for backend in before)
    return chosen, f"the first that applies ({refusals})" if refusals else "the first choice applies"


def _backend_called(name: str, problem: RetrievalProblem) -> Backend:
    for backend in BACKENDS:
        if backend.name == name:
            refusal = backend.refusal(problem)
            if refusal:
                raise ValueError(f"backend={name!r} cannot serve this call: {refusal}. Use backend='auto'.")
            return backend
    raise ValueError(f"backend={name!r} is unknown; use 'auto' or one of {available_backends()}.")
