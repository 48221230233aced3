# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""How retrieval is computed: one file per backend, one signature, none of them knows transformers.

A backend is a function `run(problem: RetrievalProblem) -> RetrievalResult` and a check
`refusal(problem) -> str | None` that says why it cannot serve a problem (`None`: it can). `reference` is the
definition and serves everything; the others are tested against it.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import torch


logger = logging.getLogger(__name__)


@dataclass(eq=False)
class RetrievalProblem:
    """
    One retrieval, as [`retrieve`] hands it to a backend: checked, and with as few forms as possible.

    Args:
        query (`torch.Tensor` of shape `(batch, heads, queries, head_dim)`): The states.
        key (`torch.Tensor` of shape `(batch, kv_heads, keys, head_dim)`):
            The stored patterns; `heads` is a multiple of `kv_heads`.
        value (`torch.Tensor` of shape `(batch, kv_heads, keys, value_dim)`): What is read out.
        scaling (`float`, *optional*): The model's own factor on `query @ key.T`; always there for a backend.
        beta (`float` or `torch.Tensor` broadcastable to `(batch, heads, queries, 1)`): Multiplier on `scaling`, > 0.
        alpha (`float` or `torch.Tensor` broadcastable to `(batch, heads, queries, 1)`): The entmax family member, in [1, 2].
        steps (`int`): Evaluations of the normaliser, the read-out included.
        tolerance (`float`): A row whose state moves by less (Euclidean norm) is not updated any more.
        mask (`torch.BoolTensor` with four dimensions, broadcastable to `(batch, heads, queries, keys)`, *optional*):
            `True` where a query may attend.
        bias (`torch.Tensor` with four dimensions, broadcastable to `(batch, heads, queries, keys)`, *optional*):
            Added to the scaled scores; -inf masks.
        is_causal (`bool`): Query `i` sees key `j` only if `j <= i + keys - queries` (aligned bottom right).
        sliding_window (`int`, *optional*): With `is_causal`, a query sees its last `sliding_window` keys only.
        softcap (`float`, *optional*): Scores become `softcap * tanh(score / softcap)` before `beta` and `bias`.
        sinks (`torch.Tensor` of shape `(heads,)`, *optional*):
            Logits of one more column whose key and value are zero.
        dropout (`float`): Probability of dropping a weight of the read-out.
        return_weights (`bool`): The caller wants the weights of the read-out.
        return_trace (`bool`): The caller wants steps used, states and energies.
    """

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    scaling: float | None = None
    beta: float | torch.Tensor = 1.0
    alpha: float | torch.Tensor = 2.0
    steps: int = 1
    tolerance: float = 0.0
    mask: torch.Tensor | None = None
    bias: torch.Tensor | None = None
    is_causal: bool = False
    sliding_window: int | None = None
    softcap: float | None = None
    sinks: torch.Tensor | None = None
    dropout: float = 0.0
    return_weights: bool = False
    return_trace: bool = False


@dataclass
class RetrievalResult:
    """
    What a backend returns.

    Args:
        output (`torch.Tensor` of shape `(batch, heads, queries, value_dim)`): The read-out, in the dtype of `value`.
        weights (`torch.Tensor` of shape `(batch, heads, queries, keys)`, *optional*):
            Read-out weights before dropout (without the column of the sinks), in the dtype of `query`.
        steps_used (`torch.LongTensor` of shape `(batch, heads, queries)`, *optional*): Evaluations of the normaliser.
        states (`torch.Tensor` of shape `(steps, batch, heads, queries, head_dim)`, *optional*): State before each one.
        energies (`torch.Tensor` of shape `(steps, batch, heads, queries)`, *optional*):
            Energy of each of the states; +inf for a row with nothing to attend to.
    """

    output: torch.Tensor
    weights: torch.Tensor | None = None
    steps_used: torch.Tensor | None = None
    states: torch.Tensor | None = None
    energies: torch.Tensor | None = None


@dataclass(frozen=True)
class Backend:
    """A way to compute retrieval: its name, the computation, and the check of when it applies."""

    name: str
    run: Callable[[RetrievalProblem], RetrievalResult]
    refusal: Callable[[RetrievalProblem], str | None]


_BACKENDS: dict[str, Backend] = {}


def register_backend(backend: Backend) -> None:
    """Add a backend. `backend="auto"` tries them from the last registered to the first, which is `reference`."""
    _BACKENDS[backend.name] = backend


def unregister_backend(name: str) -> None:
    """Take a backend away again; one that is not there is no error."""
    _BACKENDS.pop(name, None)


def available_backends() -> list[str]:
    """Names of the registered backends, in the order in which `"auto"` tries them."""
    return list(reversed(_BACKENDS))


def select_backend(problem: RetrievalProblem, name: str = "auto") -> tuple[Backend, str]:
    """
    Choose the backend for a problem.

    Returns:
        `tuple[Backend, str]`: The backend, and a sentence that says why it was chosen.
    """
    if name != "auto":
        if name not in _BACKENDS:
            raise ValueError(f"backend={name!r} is unknown; use 'auto' or one of {available_backends()}.")
        refusal = _BACKENDS[name].refusal(problem)
        if refusal:
            raise ValueError(f"backend={name!r} cannot serve this call: {refusal}. Use backend='auto'.")
        return _BACKENDS[name], "asked for by name"
    refusals = []
    for candidate in reversed(_BACKENDS.values()):
        refusal = candidate.refusal(problem)
        if refusal is None:
            reason = f"the first that applies ({'; '.join(refusals)})" if refusals else "the first choice applies"
            return candidate, reason
        refusals.append(f"{candidate.name}: {refusal}")
    raise RuntimeError(f"no backend serves this call: {'; '.join(refusals)}.")  # `reference` never refuses


# They register themselves and need the names above. The order is that of `"auto"`, from the last to the first.
from . import reference  # noqa: E402, I001
from . import blocked  # noqa: E402
from . import adasplash  # noqa: E402
from . import native  # noqa: E402
from . import dense  # noqa: E402


__all__ = [
    "Backend",
    "RetrievalProblem",
    "RetrievalResult",
    "adasplash",
    "available_backends",
    "blocked",
    "dense",
    "native",
    "reference",
    "register_backend",
    "select_backend",
    "unregister_backend",
]
