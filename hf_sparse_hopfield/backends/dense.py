# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""alpha = 1, the dense model, through torch's own `scaled_dot_product_attention`. Never used for a sparse alpha."""

import torch
import torch.nn.functional as F
from torch import Tensor

from . import Backend, RetrievalProblem, RetrievalResult, register_backend
from .reference import visible


def _mask(problem: RetrievalProblem) -> tuple[Tensor | None, Tensor | None]:
    """
    The mask in the form torch takes, and which rows have nothing to attend to.

    Softmax over nothing is NaN: such rows attend to everything here, and are set to zero afterwards.
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
    return bias.masked_fill(~finite, 0).to(problem.query.dtype).masked_fill(~allowed, -torch.inf), empty


def run(problem: RetrievalProblem) -> RetrievalResult:
    """Softmax attention; see `RetrievalProblem` for what each field means."""
    state, key, value = problem.query, problem.key, problem.value
    queries, keys = state.shape[2], key.shape[2]
    if problem.steps > 1:
        compute = torch.promote_types(state.dtype, torch.float32)  # states between the steps are not rounded
        state, key, value = state.to(compute), key.to(compute), value.to(compute)
    plain_causal = (
        problem.is_causal and problem.sliding_window is None and problem.mask is None and problem.bias is None
    )
    # Torch aligns its own causal mask top left: the same for a square, and nothing is hidden from a single query.
    mask, empty = (None, None) if plain_causal and queries in (1, keys) else _mask(problem)

    def read(state: Tensor, stored: Tensor, dropout: float) -> Tensor:
        scale = problem.scaling
        if isinstance(problem.beta, Tensor):
            state = state * problem.beta.to(state.dtype)
        else:
            scale = scale * problem.beta
        output = F.scaled_dot_product_attention(
            state,
            key,
            stored,
            attn_mask=mask if mask is None or mask.dtype == torch.bool else mask.to(state.dtype),
            dropout_p=dropout,
            is_causal=plain_causal and queries == keys,
            scale=scale,
            enable_gqa=state.shape[1] != key.shape[1],
        )
        return output if empty is None else output.masked_fill(empty, 0)

    active = None
    for _ in range(problem.steps - 1):
        new = read(state, key, 0.0)
        moved = (new - state).detach().norm(dim=-1, keepdim=True)
        state = new if active is None else torch.where(active, new, state)
        if problem.tolerance:
            still = ~(moved < problem.tolerance)
            active = still if active is None else active & still
    return RetrievalResult(read(state, value, problem.dropout).to(problem.value.dtype))


def refusal(problem: RetrievalProblem) -> str | None:
    """Why this backend cannot serve `problem`; `None` if it can."""
    if isinstance(problem.alpha, Tensor) or problem.alpha != 1.0:
        return "alpha is not 1.0"
    if problem.return_weights or problem.return_trace:
        return "it keeps no weights, states or energies"
    if problem.softcap is not None:
        return "torch's attention has no softcap"
    if problem.sinks is not None:
        return "torch's attention has no sinks"
    if problem.dropout == 1.0:
        return "torch's attention cannot drop every weight"
    if 0 in (*problem.query.shape, *problem.value.shape):
        return "there is nothing to attend to"
    return None


register_backend(Backend("dense", run, refusal))
