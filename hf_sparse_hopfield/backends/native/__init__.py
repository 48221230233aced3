# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The compiled CPU core, if a compiler built it: exact alpha-entmax attention, faster than dense attention."""

from typing import Any

import torch
from torch import Tensor

from ..backend import Backend
from ..dispatcher_bypass import can_bypass_dispatcher
from ..multistep import last_state
from ..places import at_places
from ..problem import RetrievalProblem, RetrievalResult
from . import library, ops
from .settings import Settings


_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)  # the last two are computed in float32
_MAX_INDEX = 2**31 - 1024  # columns are 32-bit integers, and rows are padded


def refusal(problem: RetrievalProblem) -> str | None:
    """The reason why the compiled core cannot serve `problem`; `None` if it can."""
    if library.missing is not None:
        return f"the compiled core is not built ({library.missing})"
    query, key = problem.query, problem.key
    if query.device.type != "cpu":
        return f"it serves tensors on the CPU, not on {query.device}"
    if query.dtype not in _DTYPES:
        return f"it computes in float32 or float64, not in {query.dtype}"
    if isinstance(problem.alpha, float) and problem.alpha == 1.0:
        return "alpha=1 is softmax, which it does not speed up"
    if problem.return_weights or problem.return_trace:
        return "it does not return weights or a trace"
    if problem.softcap is not None:
        return "it does not support softcap"
    if query.shape[2] > _MAX_INDEX or key.shape[2] > _MAX_INDEX:
        return f"{max(query.shape[2], key.shape[2])} positions do not fit its 32-bit indices"
    return None


def _vectors(tensor: Tensor, compute: torch.dtype) -> Tensor:
    if tensor.dtype != compute:
        tensor = tensor.to(compute)
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _setting(setting: float | Tensor, compute: torch.dtype) -> tuple[Tensor | None, float]:
    """A setting as the operators take it: a tensor or a number."""
    if not isinstance(setting, Tensor):
        return None, setting
    return setting if setting.dtype == compute else setting.to(compute), 0.0


def _reads_as_stored(problem: RetrievalProblem) -> bool:
    """Whether the core reads keys and values as they are stored, apart or in half precision: for few queries, without gradients."""
    query, key = problem.query, problem.key
    if key.stride(-1) != 1 or problem.value.stride(-1) != 1:
        return False
    few = query.shape[1] // key.shape[1] * query.shape[2] <= library.DECODE_ROWS
    tensors = (query, key, problem.value, problem.beta, problem.alpha, problem.bias, problem.sinks, problem.mask)
    return few and key.shape[2] <= _MAX_INDEX and can_bypass_dispatcher(*tensors)


def _screen_settings(problem: RetrievalProblem) -> tuple[Any, ...]:
    """The last of the [`Settings`]: the tensors of a screen, whether to use one, and its first place."""
    screen = problem.screen
    if screen is False or problem.query.dtype == torch.float64 or problem.places is not None:
        return ()
    if screen is True:
        return None, None, None, library.SCREEN_MADE, 0
    return screen.codes, screen.scales, screen.bounds, library.SCREEN_GIVEN, screen.first


def run(problem: RetrievalProblem) -> RetrievalResult:
    """Compute `problem` with the compiled core."""
    query, mask, bias, sinks = problem.query, problem.mask, problem.bias, problem.sinks
    dtype = query.dtype
    compute = torch.float64 if dtype == torch.float64 else torch.float32
    key, value, places = problem.key, problem.value, problem.places
    screen = _screen_settings(problem)
    if (places is not None or dtype not in (torch.float32, torch.float64)) and not _reads_as_stored(problem):
        if places is not None:
            key, value, places = at_places(key, places), at_places(value, places), None
        key, value = _vectors(key, compute), _vectors(value, compute)
    state = _vectors(query, compute)
    if key.dtype == compute:
        key, value = _vectors(key, compute), _vectors(value, compute)
    beta, beta_value = _setting(problem.beta, compute)
    alpha, alpha_value = _setting(problem.alpha, compute)
    bias = None if bias is None else bias.to(compute)
    sinks = None if sinks is None else sinks.to(compute)
    sources = (state, key, value, beta, alpha, bias, sinks)
    direct = can_bypass_dispatcher(*sources, mask)
    keep = not direct and torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in sources)
    given = screen and screen[3] == library.SCREEN_GIVEN
    layout = problem.screen.layout if direct and given else ()  # type: ignore[union-attr]  # no bool then
    fixed = (problem.scaling, beta_value, alpha_value, problem.is_causal, problem.sliding_window or 0)

    def read(state: Tensor, stored: Tensor, dropout: float = 0.0) -> Tensor:
        # drawn from torch's generator, so that torch.manual_seed and gradient checkpointing reproduce it
        seed = torch.randint(2**62, ()) if dropout else None
        settings = Settings(beta, alpha, mask, bias, sinks, seed, *fixed, dropout, *screen)
        if direct:
            return ops.read_out(state, key, stored, settings, places=places, screen=layout)
        return torch.ops.hf_sparse_hopfield.native_forward(state, key, stored, *settings, keep)[0]

    if problem.steps > 1:
        state = last_state(problem, state, lambda state: read(state, key))
    output = read(state, value, problem.dropout)
    return RetrievalResult(output if output.dtype == dtype else output.to(dtype))


def kept_support(problem: RetrievalProblem) -> tuple[Tensor, Tensor]:
    """
    The keys that have weight in one step, as the core keeps them for a backward pass.

    Args:
        problem ([`RetrievalProblem`]):
            The problem, with a batch of 1 and one head. Keys in half precision are read as they are stored.

    Returns:
        `tuple[torch.LongTensor, torch.BoolTensor]`: The keys of each query, then -1; and which queries have so many that they
        are not kept.
    """
    compute = torch.float64 if problem.key.dtype == torch.float64 else torch.float32
    query, key = _vectors(problem.query, compute), _vectors(problem.key, problem.key.dtype)
    beta, beta_value = _setting(problem.beta, compute)
    alpha, alpha_value = _setting(problem.alpha, compute)
    fixed = (problem.scaling, beta_value, alpha_value, problem.is_causal, problem.sliding_window or 0, 0.0)
    settings = Settings(beta, alpha, problem.mask, None, None, None, *fixed, *_screen_settings(problem))
    together = query.shape[2] if key.dtype == compute else library.DECODE_ROWS
    found = [ops.kept_columns(some, key, settings) for some in query.split(max(1, together), 2)]
    most = max(columns.shape[1] for columns, _ in found)
    columns = [torch.nn.functional.pad(columns, (0, most - columns.shape[1]), value=-1) for columns, _ in found]
    return torch.cat(columns), torch.cat([missing for _, missing in found])


BACKEND = Backend(name="native", run=run, refusal=refusal, priority=300, reads_places=True, own_operators=True)
