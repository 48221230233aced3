# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Dense retrieval (alpha = 1) with torch's own `scaled_dot_product_attention`."""

import torch
import torch.nn.functional as F
from torch import Tensor

from .backend import Backend
from .masks import visible, without_unseen
from .multistep import last_state
from .problem import RetrievalProblem, RetrievalResult


# The largest queries x keys matrix that this backend allocates by itself. Beyond it, other backends need memory that
# grows only linearly with the length.
_MATRIX_ENTRIES = 1 << 18


def _mask(problem: RetrievalProblem, dtype: torch.dtype) -> tuple[Tensor | None, Tensor | None]:
    """
    The mask in the form that torch takes, and the rows that have nothing to attend to.

    Softmax over nothing is NaN, so such rows attend to everything here and are set to zero afterwards.
    """
    allowed, bias = visible(problem), problem.bias
    if bias is not None:
        finite = bias != -torch.inf
        allowed = finite if allowed is None else allowed & finite
    if allowed is None:
        return None, None
    empty = ~allowed.any(-1, keepdim=True)
    allowed = allowed | empty
    if bias is None:
        return allowed, empty
    return bias.masked_fill(~finite, 0).to(dtype).masked_fill(~allowed, -torch.inf), empty


def _is_plainly_causal(problem: RetrievalProblem) -> bool:
    """Whether torch's own causal mask suffices: it is aligned top left, right for a square and for one query."""
    if not problem.is_causal or problem.sliding_window is not None or problem.segments is not None:
        return False
    return problem.mask is None and problem.bias is None and problem.query.shape[2] in (1, problem.key.shape[2])


def run(problem: RetrievalProblem) -> RetrievalResult:
    """Compute `problem` as softmax attention."""
    with torch.autocast(problem.query.device.type, enabled=False):  # autocast would round float32
        return _run(problem)


def _run(problem: RetrievalProblem) -> RetrievalResult:
    state, key, value = problem.query, problem.key, problem.value
    if problem.steps > 1 or problem.bias is not None or isinstance(problem.beta, Tensor):
        # computations outside of torch's kernel must not be rounded to half precision
        compute = torch.promote_types(state.dtype, torch.float32)
        state, key, value = state.to(compute), key.to(compute), value.to(compute)
    if problem.mask is not None:
        key, value = without_unseen(key, problem.mask), without_unseen(value, problem.mask)
    plainly_causal = _is_plainly_causal(problem)
    mask, empty = (None, None) if plainly_causal else _mask(problem, state.dtype)

    def read(state: Tensor, stored: Tensor, dropout: float = 0.0) -> Tensor:
        scale = problem.scaling
        if isinstance(problem.beta, Tensor):
            state = state * problem.beta.to(state.dtype)
        else:
            scale = scale * problem.beta
        output = F.scaled_dot_product_attention(
            state,
            key,
            stored,
            attn_mask=mask,
            dropout_p=dropout,
            is_causal=plainly_causal and state.shape[2] > 1,
            scale=scale,
            enable_gqa=state.shape[1] != key.shape[1],
        )
        return output if empty is None else output.masked_fill(empty, 0)

    state = last_state(problem, state, lambda state: read(state, key))
    return RetrievalResult(read(state, value, problem.dropout).to(problem.value.dtype))


def refusal(problem: RetrievalProblem) -> str | None:
    """The reason why this backend cannot serve `problem`; `None` if it can."""
    if isinstance(problem.alpha, Tensor) or problem.alpha != 1.0:
        return "alpha is not 1.0"
    if problem.return_weights or problem.return_trace:
        return "it does not return weights, states or energies"
    if problem.softcap is not None:
        return "torch's attention has no softcap"
    if problem.sinks is not None:
        return "torch's attention has no sinks"
    if problem.dropout == 1.0:
        return "torch's attention cannot drop every weight"
    is_large = problem.query.shape[2] * problem.key.shape[2] > _MATRIX_ENTRIES
    if problem.dropout and problem.query.device.type == "cpu" and is_large:
        return "with dropout, torch's attention on the CPU forms all weights"
    if 0 in (*problem.query.shape, *problem.value.shape):
        return "there is nothing to attend to"
    if problem.is_causal and not _is_plainly_causal(problem) and is_large:
        return "torch's attention would need a mask of all queries and keys"
    return None


BACKEND = Backend(name="dense", run=run, refusal=refusal, priority=400)
