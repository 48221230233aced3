# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Retrieval on GPUs, with Triton kernels: exact, O(N) memory, no host sync, outputs of fixed size.

`kernels/forward` looks at every score once and then only at tiles that can have weight; `kernels/backward` goes over the same
tiles without atomic operations; `kernels/decode` splits the keys of few queries. `launch` hands them tensors, `tiles` says how
large their tiles are, `ops` makes operators of the passes. docs/gpu.md describes the algorithm and what it costs.
"""

import importlib.util

import torch
from torch import Tensor

from ..backend import Backend
from ..multistep import last_state
from ..problem import RetrievalProblem, RetrievalResult
from . import decode, ops  # importing `ops` registers the operators
from .launch import interpreted
from .settings import Settings


_WIDEST = 256
INSTALLED = importlib.util.find_spec("triton") is not None


def refusal(problem: RetrievalProblem) -> str | None:
    """The reason why this backend cannot serve `problem`; `None` if it can."""
    query, value = problem.query, problem.value
    if query.device.type != "cuda" and not interpreted():
        return f"it needs CUDA or ROCm, the query is on {query.device.type}"
    if not INSTALLED:
        return 'the package triton is not installed; use `pip install "hf_sparse_hopfield[triton]"`'
    if problem.return_weights or problem.return_trace:
        return "it does not return weights, states or energies"
    if torch.float64 in (query.dtype, problem.key.dtype, value.dtype):
        return "it does not compute in float64"
    if not 0 < query.shape[3] <= _WIDEST or not 0 < value.shape[3] <= _WIDEST:
        return f"its kernels have head dimensions from 1 to {_WIDEST}"
    return None


def run(problem: RetrievalProblem) -> RetrievalResult:
    """Compute `problem` on the GPU."""
    state = problem.query.float() if problem.steps > 1 else problem.query  # states between the steps are not rounded
    state = last_state(problem, state, lambda state: _step(problem, state, problem.key, torch.float32, 0.0))
    return RetrievalResult(_step(problem, state, problem.value, problem.value.dtype, problem.dropout))


def _step(problem: RetrievalProblem, state: Tensor, value: Tensor, dtype: torch.dtype, dropout: float) -> Tensor:
    """Evaluate the normalizer once and read out `value`."""
    settings = _settings(problem, state, dropout)
    inputs = (state, problem.key, value, settings.beta, settings.alpha, settings.bias, settings.sinks)
    keep = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs)
    if not keep and decode.applies(state, problem.key, value, settings):
        codes, scales, bounds, first = _screen(problem)
        return torch.ops.hf_sparse_hopfield.triton_decode(
            state, problem.key, value, codes, scales, bounds, first, *settings, dtype
        )
    return torch.ops.hf_sparse_hopfield.triton_forward(state, problem.key, value, *settings, dtype, keep)[0]


def _screen(problem: RetrievalProblem) -> tuple[Tensor | None, Tensor | None, Tensor | None, int]:
    """The tensors of the int8 copy of the keys, if there is one."""
    screen = problem.screen
    if isinstance(screen, bool):
        return None, None, None, 0
    return screen.codes, screen.scales, screen.bounds, screen.first


def _settings(problem: RetrievalProblem, state: Tensor, dropout: float) -> Settings:
    beta, alpha = problem.beta, problem.alpha
    segments = problem.segments or (None, None)
    return Settings(
        scaling=problem.scaling,
        beta_value=1.0 if isinstance(beta, Tensor) else beta,
        beta=beta if isinstance(beta, Tensor) else None,
        alpha_value=1.5 if isinstance(alpha, Tensor) else alpha,
        alpha=alpha if isinstance(alpha, Tensor) else None,
        mask=problem.mask,
        bias=problem.bias,
        sinks=problem.sinks,
        query_segments=segments[0],
        key_segments=segments[1],
        is_causal=problem.is_causal,
        window=problem.sliding_window or 0,
        softcap=problem.softcap or 0.0,
        dropout=dropout,
        # Drawn outside the operator, so that it follows torch's generator, also under gradient checkpointing.
        seed=torch.randint(1 << 40, (), device=state.device) if dropout else None,
    )


BACKEND = Backend(name="triton", run=run, refusal=refusal, priority=200, reads_segments=True, own_operators=True)
