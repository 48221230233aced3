# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The definition of retrieval: readable, eager, all scores at once. Every other backend is tested against it."""

import torch
import torch.nn.functional as F

from ..functional.energy import conjugate
from ..functional.normalizers import entmax
from .backend import Backend
from .masks import visible, without_unseen
from .problem import RetrievalProblem, RetrievalResult


def _per_group(tensor: torch.Tensor, kv_heads: int) -> torch.Tensor:
    """`(batch, heads, n, m)` -> `(batch, kv_heads, heads / kv_heads * n, m)`: heads that share keys are stacked."""
    batch, heads, n, m = tensor.shape
    return tensor.reshape(batch, kv_heads, heads // kv_heads * n, m)


def run(problem: RetrievalProblem) -> RetrievalResult:
    """Compute `problem` step by step."""
    with torch.autocast(problem.query.device.type, enabled=False):  # autocast would round float32
        return _run(problem)


def _run(problem: RetrievalProblem) -> RetrievalResult:
    dtype = torch.promote_types(problem.query.dtype, torch.float32)
    # contiguous: given mixed layouts, `where` below returns other strides in eager mode than in torch.compile
    state = problem.query.to(dtype).contiguous()
    key, value = (without_unseen(t.to(dtype), problem.mask) for t in (problem.key, problem.value))
    batch, heads, queries, _ = state.shape
    kv_heads, keys = key.shape[1], key.shape[2]
    allowed = visible(problem)
    bias = None if problem.bias is None else problem.bias.to(dtype)
    beta = problem.beta.to(dtype) if isinstance(problem.beta, torch.Tensor) else problem.beta

    def scores(state: torch.Tensor) -> torch.Tensor:
        product = _per_group(state, kv_heads) @ key.transpose(-1, -2) * problem.scaling
        result = product.reshape(batch, heads, queries, keys)
        if problem.softcap is not None:
            result = problem.softcap * torch.tanh(result / problem.softcap)
        result = beta * result
        if bias is not None:
            result = result + bias
        if allowed is not None:
            result = result.masked_fill(~allowed, -torch.inf)
        if problem.sinks is not None:
            sink = problem.sinks.to(dtype)[:, None, None].expand(batch, heads, queries, 1)
            result = torch.cat([result, sink], -1)
        return result

    def read(weights: torch.Tensor, stored: torch.Tensor) -> torch.Tensor:
        product = _per_group(weights[..., :keys], kv_heads) @ stored
        return product.reshape(batch, heads, queries, stored.shape[-1])

    active = torch.ones(batch, heads, queries, 1, dtype=torch.bool, device=state.device)
    steps_used = active.squeeze(-1).long()
    states, current = [state], scores(state)
    trace = [current]
    for _ in range(problem.steps - 1):
        new = read(entmax(current, problem.alpha), key)
        moved = (new - state).detach().norm(dim=-1, keepdim=True)
        state = torch.where(active, new, state)
        steps_used = steps_used + active.squeeze(-1)
        active = active & ~(moved < problem.tolerance)
        current = scores(state)
        states.append(state)
        trace.append(current)
    weights = entmax(current, problem.alpha)
    dropped = F.dropout(weights, problem.dropout) if problem.dropout else weights
    result = RetrievalResult(read(dropped, value).to(problem.value.dtype))
    if problem.return_weights or problem.return_trace:
        result.weights = weights[..., :keys].to(problem.query.dtype)
    if problem.return_trace:
        sharpness = beta * problem.scaling
        sharpness = sharpness.squeeze(-1) if isinstance(sharpness, torch.Tensor) else sharpness
        result.steps_used = steps_used
        result.states = torch.stack(states)
        result.energies = torch.stack(
            [
                x.square().sum(-1) / 2 - conjugate(z, problem.alpha) / sharpness
                for x, z in zip(states, trace, strict=True)
            ]
        )
    return result


BACKEND = Backend(name="reference", run=run, refusal=lambda problem: None, priority=0)
