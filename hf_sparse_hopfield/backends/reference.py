# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The definition of retrieval: readable, eager, with all scores at once. Every other backend is tested against it."""

import torch
import torch.nn.functional as F

from ..functional.energy import conjugate
from ..functional.normalizers import entmax
from . import Backend, RetrievalProblem, RetrievalResult, register_backend


def visible(problem: RetrievalProblem) -> torch.Tensor | None:
    """Which keys a query may attend to, all kinds of masks together; `None` if all."""
    allowed = problem.mask
    if problem.is_causal:
        queries, keys = problem.query.shape[-2], problem.key.shape[-2]
        last = torch.arange(queries, device=problem.query.device)[:, None] + keys - queries
        position = torch.arange(keys, device=problem.query.device)
        causal = position <= last
        if problem.sliding_window is not None:
            causal = causal & (position > last - problem.sliding_window)
        allowed = causal if allowed is None else allowed & causal
    return allowed


def per_group(tensor: torch.Tensor, kv_heads: int) -> torch.Tensor:
    """`(batch, heads, n, m)` -> `(batch, kv_heads, heads / kv_heads * n, m)`: heads that share keys lie under each other."""
    batch, heads, n, m = tensor.shape
    return tensor.reshape(batch, kv_heads, heads // kv_heads * n, m)


def blanked(stored: torch.Tensor, allowed: torch.Tensor | None) -> torch.Tensor:
    """Patterns that no query may attend to become zero: their weight is, but 0 times NaN or infinity is not."""
    if allowed is None:
        return stored
    kv_heads, keys = stored.shape[1:3]
    seen = allowed.any(-2).expand(-1, -1, keys)
    if seen.shape[1] not in (1, kv_heads):
        seen = seen.unflatten(1, (kv_heads, -1)).any(2)
    return stored.masked_fill(~seen.unsqueeze(-1), 0)


def run(problem: RetrievalProblem) -> RetrievalResult:
    """Compute `problem` step by step; see `RetrievalProblem` for what each field means."""
    with torch.autocast(problem.query.device.type, enabled=False):  # float32 or better means what it says
        return _run(problem)


def _run(problem: RetrievalProblem) -> RetrievalResult:
    dtype = torch.promote_types(problem.query.dtype, torch.float32)
    # contiguous: the stride that `where` gives a mixture of layouts below differs between eager and torch.compile
    state = problem.query.to(dtype).contiguous()
    key, value = (blanked(t.to(dtype), problem.mask) for t in (problem.key, problem.value))
    batch, heads, queries, _ = state.shape
    kv_heads, keys = key.shape[1], key.shape[2]
    allowed = visible(problem)
    bias = None if problem.bias is None else problem.bias.to(dtype)
    beta = problem.beta.to(dtype) if isinstance(problem.beta, torch.Tensor) else problem.beta

    def scores(state: torch.Tensor) -> torch.Tensor:
        product = per_group(state, kv_heads) @ key.transpose(-1, -2) * problem.scaling
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
        product = per_group(weights[..., :keys], kv_heads) @ stored
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


register_backend(Backend("reference", run, refusal=lambda problem: None))
