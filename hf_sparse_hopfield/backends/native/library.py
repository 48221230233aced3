# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Finds the compiled core and calls it with plain pointers over ctypes, without torch's C++ interface."""

import ctypes
import logging
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

import torch

from .settings import Settings


logger = logging.getLogger(__name__)

# As in source/problem.hpp: rows per block, and words kept per row. A word is as wide as a number.
BLOCK_ROWS = 32
DECODE_ROWS = 16  # up to this many queries that share keys, the core takes its decode way
ROW_STATE = 4
WORDS = {torch.float32: torch.int32, torch.float64: torch.int64}
LEVELS = ("generic", "AVX2", "AVX-VNNI", "AVX-512", "AVX-512 VNNI", "NEON dot product")
# How numbers of keys and values are stored, and what a call does about screening.
KINDS = {torch.float32: 0, torch.float64: 0, torch.bfloat16: 1, torch.float16: 2}
NEVER_SCREEN, SCREEN_GIVEN, SCREEN_MADE = range(3)

# Supports are kept up to this mean size per block; larger ones are computed again, at the cost of one matrix product.
_KEPT_PER_ROW = 64

# Sizes and flags (12), vectors (3 x 4), settings (2 x 4), mask and bias (2 x 5), sinks, output (4), states, support;
# gradients (4 x 4), gradient of the bias (5), of alpha, sinks and beta (3); four reals; places (2), kinds (2), screening, the
# screen (3 x 3), its first place, counts.
_FORWARD = struct.Struct(f"=49q{24 * 8}x4d16q")
_BACKWARD = struct.Struct("=73q4d16q")
_SCREENED_KEYS = struct.Struct("=20q")
# For float32 and float64.
_FUNCTIONS = (
    "hopfield_forward",
    "hopfield_backward",
    "hopfield_forward_double",
    "hopfield_backward_double",
    "hopfield_screen",
)
_NO_COMPILER = "no C++ compiler could build it when the package was installed"
_NO_VECTORS = (0, 0, 0, 0)
_NO_SCORES = (0, 0, 0, 0, 0)
_NO_SCREEN = (0,) * 9


def find() -> tuple[ctypes.CDLL | None, str | None]:
    """
    Load the compiled core.

    The core is built as an extension module so that every build tool can handle it, but opened as a plain shared
    library, after torch, so that it finds the OpenMP runtime that torch has loaded.

    Returns:
        `tuple`: The core, or `None` and the reason why there is none.
    """
    override = os.environ.get("HF_SPARSE_HOPFIELD_CORE")
    candidates = sorted(Path(__file__).parent.glob("_core*"))
    if override is not None:
        candidates = [Path(override)]
    in_package = __name__.startswith("hf_sparse_hopfield.")  # a copy is in the kernel of the Hub, which is pure Python
    reason = _why_not_built() if in_package else "a kernel has none"
    for path in candidates:
        if path.suffix not in (".so", ".pyd", ".dylib"):
            continue
        try:
            library = ctypes.CDLL(str(path))
            sizes = [getattr(library, name) for name in ("hopfield_problem_size", "hopfield_screened_keys_size")]
            functions = [getattr(library, name) for name in _FUNCTIONS]
        except (OSError, AttributeError) as error:
            reason = f"{path.name} cannot be loaded: {error}"
            continue
        for size in sizes:
            size.restype = ctypes.c_int64
        if [size() for size in sizes] != [_BACKWARD.size, _SCREENED_KEYS.size]:
            reason = f"{path.name} belongs to another version of the package{_how_to_build()}"
            continue
        for function in functions:
            function.argtypes, function.restype = [ctypes.c_char_p], ctypes.c_int
        return library, None
    level = logging.WARNING if in_package else logging.INFO
    logger.log(level, "the compiled core is not built (%s); pure PyTorch is used instead", reason)
    return None, reason


def _why_not_built() -> str:
    how = _how_to_build()
    return f"nothing has built it in this source tree{how}" if how else _NO_COMPILER


def _how_to_build() -> str:
    """How to build the core, if this is a source tree: an installed package does not have the C++ sources."""
    if not Path(__file__).with_name("source").is_dir():
        return ""
    root = Path(__file__).parents[3]
    return f": `pip install -e {root}` builds it, with a C++ compiler that knows OpenMP, such as g++ (with -v, pip shows why if not)"


# At import, so that nothing is searched for while torch.compile traces a call.
_core, missing = find()
_RUN = {} if _core is None else {name: getattr(_core, name) for name in _FUNCTIONS}


def _loaded() -> ctypes.CDLL:
    if _core is None:
        raise RuntimeError(f"the compiled core is not built ({missing})")
    return _core


def limit_level(level: int) -> str:
    """Use at most this one of `LEVELS` (-1: the best); returns the one in use."""
    global _limit
    _limit = level
    return LEVELS[_loaded().hopfield_level(level)]


def level() -> str:
    """The one of `LEVELS` that is in use."""
    return LEVELS[_loaded().hopfield_level(_limit)]


_limit = -1


def screen_always(always: bool) -> None:
    """For tests: screen wherever there is or may be a screen, whether that pays or not."""
    _loaded().hopfield_screen_always(int(always))


def kept_per_row(keys: int) -> int:
    """Number of entries of its support that a row has room for."""
    if isinstance(keys, int):
        return min(_KEPT_PER_ROW, keys)
    return torch.sym_min(_KEPT_PER_ROW, keys)  # a symbolic length under torch.export


def _vectors(tensor: torch.Tensor) -> tuple[int, ...]:
    """Address and strides of a tensor whose last dimension is contiguous."""
    return tensor.data_ptr(), *tensor.stride()[:3]


def _broadcast(tensor: torch.Tensor, dimensions: int) -> tuple[int, ...]:
    """Address and strides of a tensor that is broadcast: the stride of a dimension of size 1 is 0."""
    strides = [0 if size == 1 else stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)]
    return (tensor.data_ptr(), *strides[:dimensions])


def _address(tensor: torch.Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _call(
    name: str,
    layout: struct.Struct,
    targets: tuple[int, ...],
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    settings: Settings,
    places: torch.Tensor | None = None,
    screen: tuple[int, ...] = (),
) -> None:
    """Pack a problem as in source/problem.hpp and run a function of the core on it."""
    beta, alpha, mask, bias, sinks, seed, scaling, beta_value, alpha_value, is_causal, window, dropout = settings[:12]
    batch, heads, queries, head_dim = query.shape
    _, kv_heads, keys, value_dim = value.shape
    if places is not None:
        keys = places.shape[1]
    sinks = None if sinks is None else sinks.contiguous()
    packed = layout.pack(
        batch,
        heads,
        kv_heads,
        queries,
        keys,
        head_dim,
        value_dim,
        is_causal,
        window,
        0 if seed is None else int(seed),
        torch.get_num_threads(),
        keys if keys < _KEPT_PER_ROW else _KEPT_PER_ROW,
        query.data_ptr(),
        *query.stride()[:3],
        key.data_ptr(),
        *key.stride()[:3],
        value.data_ptr(),
        *value.stride()[:3],
        *(_NO_VECTORS if beta is None else _broadcast(beta, 3)),
        *(_NO_VECTORS if alpha is None else _broadcast(alpha, 3)),
        *(_NO_SCORES if mask is None else _broadcast(mask, 4)),
        *(_NO_SCORES if bias is None else _broadcast(bias, 4)),
        0 if sinks is None else sinks.data_ptr(),
        *targets,
        scaling,
        beta_value,
        alpha_value,
        dropout,
        *((0, 0) if places is None else _broadcast(places, 1)),
        KINDS[key.dtype],
        KINDS[value.dtype],
        settings.screening,
        *(screen or (_NO_SCREEN if settings.codes is None else screen_layout(*settings[12:15]))),
        settings.screen_first,
        _address(_counts.get()),
    )
    failure = _RUN[f"{name}_double" if query.dtype == torch.float64 else name](packed)
    if failure == 2:
        raise ValueError(
            "screen does not belong to key: a score is outside of its bounds. Make the screen of these keys, "
            "`KeyScreen(key)`, and append to it what is appended to them."
        )
    if failure:
        raise MemoryError(f"the compiled core could not allocate its buffers for {keys} keys")


def screen_layout(codes: Any, scales: Any, bounds: Any) -> tuple[int, ...]:
    """Addresses and strides of a screen."""
    return (
        codes.data_ptr(),
        codes.stride(0),
        codes.stride(1),
        scales.data_ptr(),
        scales.stride(0),
        scales.stride(1),
        bounds.data_ptr(),
        bounds.stride(0),
        bounds.stride(1),
    )


def call_screen(key: torch.Tensor, screen: tuple[int, ...], first: int) -> None:
    """
    Add keys to a screen.

    Args:
        key (`torch.Tensor` of shape `(batch, kv_heads, keys, head_dim)`): The keys, with contiguous vectors.
        screen (`tuple[int, ...]`): [`screen_layout`] of a screen with room for the keys.
        first (`int`): Place of the first of the keys.
    """
    batch, heads, count, width = key.shape
    threads, kind = torch.get_num_threads(), KINDS[key.dtype]
    sizes = (batch, heads, width, first, first + count, threads, kind)
    _RUN["hopfield_screen"](_SCREENED_KEYS.pack(*sizes, key.data_ptr(), *key.stride()[:3], *screen))


_counts: ContextVar[torch.Tensor | None] = ContextVar("counts", default=None)


@contextmanager
def counted_reads() -> Iterator[torch.Tensor]:
    """
    Count what the core reads, in the current thread.

    Yields:
        `torch.LongTensor` of shape `(4,)`: Keys read as int8, keys scored exactly and values read (each of them for each row
        that reads it), and rows that took the ordinary way although there was a screen.
    """
    counts = torch.zeros(4, dtype=torch.int64)
    token = _counts.set(counts)
    try:
        yield counts
    finally:
        _counts.reset(token)


def call_forward(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    settings: Settings,
    output: torch.Tensor,
    states: torch.Tensor | None = None,
    support: torch.Tensor | None = None,
    places: torch.Tensor | None = None,
    screen: tuple[int, ...] = (),
) -> None:
    """
    Run the forward pass on tensors that the caller keeps alive.

    Args:
        query, key, value (`torch.Tensor`): As in `RetrievalProblem`, with contiguous vectors.
        settings ([`Settings`]): The settings of the call.
        output (`torch.Tensor` of shape `(batch, heads, queries, value_dim)`): Written to.
        states, support (`torch.Tensor`, *optional*): Written to; `None` if there will be no backward pass.
        places (`torch.LongTensor` of shape `(batch or 1, keys)`, *optional*):
            As in `RetrievalProblem`, for at most `DECODE_ROWS` queries that share keys and without a backward pass.
        screen (`tuple[int, ...]`, *optional*): [`screen_layout`] of the screen in `settings`, if it is known.
    """
    targets = (output.data_ptr(), *output.stride()[:3], _address(states), _address(support))
    _call("hopfield_forward", _FORWARD, targets, query, key, value, settings, places, screen)


class BackwardTensors(NamedTuple):
    """
    The tensors of a backward pass besides its problem.

    Args:
        states, support (`torch.Tensor`): Read; from the forward pass.
        upstream (`torch.Tensor` of shape `(batch, heads, queries, value_dim)`): Read; gradient of the output.
        query, key, value (`torch.Tensor`): Written to; their gradients.
        beta, alpha, bias, sinks (`torch.Tensor`, *optional*): Written to; their gradients, `None` if not wanted.
    """

    states: torch.Tensor
    support: torch.Tensor
    upstream: torch.Tensor
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    beta: torch.Tensor | None
    alpha: torch.Tensor | None
    bias: torch.Tensor | None
    sinks: torch.Tensor | None


def call_backward(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, settings: Settings, tensors: BackwardTensors
) -> None:
    """
    Run the backward pass on tensors that the caller keeps alive.

    Args:
        query, key, value, settings: As for [`call_forward`].
        tensors ([`BackwardTensors`]): The tensors to read and write.
    """
    targets = (
        *_NO_VECTORS,
        tensors.states.data_ptr(),
        tensors.support.data_ptr(),
        *_vectors(tensors.upstream),
        *_vectors(tensors.query),
        *_vectors(tensors.key),
        *_vectors(tensors.value),
        *(_NO_SCORES if tensors.bias is None else _broadcast(tensors.bias, 4)),
        _address(tensors.alpha),
        _address(tensors.sinks),
        _address(tensors.beta),
    )
    _call("hopfield_backward", _BACKWARD, targets, query, key, value, settings)
