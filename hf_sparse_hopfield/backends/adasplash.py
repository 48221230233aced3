# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Sparse self-attention on CUDA with the Triton kernels of the optional package `adasplash`, where they apply."""

import functools
import importlib.util
import math
import os

import torch
import torch.nn.functional as F
from torch import Tensor

from .backend import Backend
from .multistep import last_state
from .problem import RetrievalProblem, RetrievalResult


_WIDTHS = (16, 32, 64, 128, 256)  # head dimensions the kernels are written for


@functools.cache
def _missing() -> str | None:
    """The first missing package, if any; looked up once."""
    for name in ("adasplash", "triton"):
        if importlib.util.find_spec(name) is None:
            return name
    return None


def _interpreted() -> bool:
    """Whether Triton's interpreter runs the kernels on the CPU, which is slow and meant for tests."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def _attend(problem: RetrievalProblem, state: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Evaluate the normalizer once and read out `value`."""
    from adasplash import adasplash_no_block_mask

    batch, heads, length, _ = state.shape
    width = next(w for w in _WIDTHS if w >= max(key.shape[-1], value.shape[-1]))
    # The kernels divide by the square root of the width they see and apply no other factor.
    state = state * (problem.beta * problem.scaling * math.sqrt(width))
    groups = heads // key.shape[1]
    tensors = []
    for tensor in (state, key, value):
        tensor = F.pad(tensor.to(problem.query.dtype), (0, width - tensor.shape[-1]))
        tensors.append(tensor if tensor.shape[1] == heads else tensor.repeat_interleave(groups, 1))
    if torch.is_grad_enabled() and not tensors[0].requires_grad and any(t.requires_grad for t in tensors[1:]):
        # The kernels prepare the backward pass only if the query requires a gradient.
        tensors[0] = tensors[0].detach().requires_grad_()
    # The kernels skip bounds checks safely only for a power of two of at least 128, which whole blocks cover.
    # Any other length is passed explicitly for each sequence.
    whole = length & (length - 1) == 0 and length >= 128
    lengths = None if whole else torch.full((batch,), length, dtype=torch.int32, device=state.device)
    output = adasplash_no_block_mask(
        *(tensor.contiguous() for tensor in tensors), alpha=problem.alpha, is_causal=problem.is_causal, varlen=lengths
    )
    return output[..., : value.shape[-1]]


def run(problem: RetrievalProblem) -> RetrievalResult:
    """Compute `problem` on the GPU."""
    state = last_state(problem, problem.query, lambda state: _attend(problem, state, problem.key, problem.key))
    return RetrievalResult(_attend(problem, state, problem.key, problem.value).to(problem.value.dtype))


def refusal(problem: RetrievalProblem) -> str | None:
    """The reason why this backend cannot serve `problem`; `None` if it can."""
    query, value = problem.query, problem.value
    if query.device.type != "cuda" and not _interpreted():
        return f"it needs CUDA, the query is on {query.device.type}"
    if _missing():
        return f"the package {_missing()} is not installed"
    if torch.compiler.is_compiling():
        return "its kernels are not traced by torch.compile"
    if isinstance(problem.alpha, Tensor) or not 1.0 < problem.alpha <= 2.0:
        return "it needs one plain alpha above 1"
    if problem.return_weights or problem.return_trace:
        return "it does not return weights, states or energies"
    for name in ("mask", "bias", "sliding_window", "softcap", "sinks"):
        if getattr(problem, name) is not None:
            return f"it does not support {name}"
    if problem.dropout:
        return "it does not support dropout"
    if query.dtype == torch.float64:
        return "it does not compute in float64"
    if query.shape[2] != problem.key.shape[2]:
        return "it needs as many queries as keys"
    if 0 in (*query.shape, *value.shape):
        return "there is nothing to attend to"
    if max(query.shape[3], value.shape[3]) > _WIDTHS[-1]:
        return f"head dimensions above {_WIDTHS[-1]} do not fit its kernels"
    return None


BACKEND = Backend(name="adasplash", run=run, refusal=refusal, priority=200)
