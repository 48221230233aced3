# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Retrieval in pure PyTorch on any device, without a tensor of size queries x keys.

The rows are divided into blocks (`layout`, `partition`). A block sees all of its keys at once, in scores that fit a
cache (`scores`). It then goes one of two ways:

- Few survivors: `support` finds the entries that have weight and solves them exactly. They are kept as indices and
  weights (`sparse_rows`). The read-out and the whole backward pass touch only them, and nothing is computed twice.
- Many survivors: the block is normalized (`solver`) and multiplied as matrices, and computed again in the backward
  pass, as in dense attention.

`forward` and `backward` are the two passes, `ops` makes operators of them, and `decode` is a shortcut for few queries.
"""

import torch
from torch import Tensor

from ..backend import Backend
from ..dispatcher_bypass import can_bypass_dispatcher
from ..multistep import last_state
from ..problem import RetrievalProblem, RetrievalResult
from . import decode, ops  # importing `ops` registers the operators
from .forward import forward_pass
from .settings import Settings


def refusal(problem: RetrievalProblem) -> str | None:
    """The reason why this backend cannot serve `problem`; `None` if it can."""
    if problem.return_weights or problem.return_trace:
        return "it does not return weights, states or energies"
    if 0 in (problem.query.shape[3], problem.value.shape[3]):
        return "there is nothing to multiply"
    batch, heads, queries, _ = problem.query.shape
    if max(batch * heads * queries, batch * heads * problem.key.shape[2]) > 2**31 - 1:
        return "32-bit indices cannot address this many queries or keys"
    return None


def run(problem: RetrievalProblem) -> RetrievalResult:
    """Compute `problem` block by block."""
    state, key, value = problem.query, problem.key, problem.value
    if problem.steps > 1:
        compute = torch.promote_types(state.dtype, torch.float32)  # states between the steps are not rounded
        state, key, value = state.to(compute), key.to(compute), value.to(compute)
    state = last_state(problem, state, lambda state: _step(problem, state, key, key, 0.0))
    return RetrievalResult(_step(problem, state, key, value, problem.dropout).to(problem.value.dtype))


def _step(problem: RetrievalProblem, state: Tensor, key: Tensor, value: Tensor, dropout: float) -> Tensor:
    """Evaluate the normalizer once and read out `value`."""
    inputs = (state, key, value, problem.beta, problem.alpha, problem.bias, problem.sinks)
    direct = can_bypass_dispatcher(*inputs, problem.mask)
    if direct and not dropout and decode.applies(problem):
        output = decode.read_out(problem, state, key, value)
        if output is not None:
            return output
    settings = _settings(problem, state, dropout)
    if direct:
        return forward_pass(state, key, value, settings, keep=False)[0]
    keep = torch.is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in inputs)
    return torch.ops.hf_sparse_hopfield.blocked_forward(state, key, value, *settings, keep)[0]


def _settings(problem: RetrievalProblem, state: Tensor, dropout: float) -> Settings:
    rows = (*state.shape[:3], 1)
    beta, alpha = problem.beta, problem.alpha
    return Settings(
        scaling=problem.scaling,
        factor=1.0 if isinstance(beta, Tensor) else beta,
        beta=beta.expand(rows) if isinstance(beta, Tensor) else None,
        alpha=alpha.expand(rows) if isinstance(alpha, Tensor) else None,
        alpha_value=0.0 if isinstance(alpha, Tensor) else alpha,
        mask=problem.mask,
        bias=problem.bias,
        sinks=problem.sinks,
        is_causal=problem.is_causal,
        window=problem.sliding_window or 0,
        softcap=problem.softcap or 0.0,
        dropout=dropout,
        # Drawn outside the operator, so that it follows torch's generator, also under gradient checkpointing.
        seed=torch.randint(1 << 40, (), device=state.device) if dropout else None,
    )


BACKEND = Backend(name="blocked", run=run, refusal=refusal, priority=100, own_operators=True)
