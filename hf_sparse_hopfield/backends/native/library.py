# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Finds the compiled core and calls it: plain pointers over ctypes, nothing of torch's C++ interface."""

import ctypes
import logging
import os
import struct
from pathlib import Path

import torch


logger = logging.getLogger(__name__)

# As in source/problem.hpp: rows of a block, and words that are kept of a row. A word is as wide as a number.
BLOCK_ROWS = 32
ROW_STATE = 4
WORDS = {torch.float32: torch.int32, torch.float64: torch.int64}
LEVELS = ("generic", "AVX2", "AVX-512")

# Mean support of a block up to which it is kept; more is computed again, at the price of one matrix product.
_KEPT_PER_ROW = 64

# Sizes and flags (12), vectors (3 x 4), settings (2 x 4), mask and bias (2 x 5), sinks, output (4), states, support;
# gradients (4 x 4), gradient of the bias (5), of alpha, sinks and beta (3); and four reals.
_FORWARD = struct.Struct(f"=49q{24 * 8}x4d")
_BACKWARD = struct.Struct("=73q4d")
# For float32 and float64.
_FUNCTIONS = ("hopfield_forward", "hopfield_backward", "hopfield_forward_double", "hopfield_backward_double")
_NO_VECTORS = (0, 0, 0, 0)
_NO_SCORES = (0, 0, 0, 0, 0)


def find() -> tuple[ctypes.CDLL | None, str | None]:
    """
    The compiled core, or the reason why there is none.

    The core is built as an extension module so that every build tool knows what to do with it, but it is opened as a
    plain shared library: after torch, so that it finds the OpenMP runtime that torch has loaded.
    """
    override = os.environ.get("HF_SPARSE_HOPFIELD_CORE")
    candidates = sorted(Path(__file__).parent.glob("_core*"))
    if override is not None:
        candidates = [Path(override)]
    reason = "when the package was installed, there was no C++ compiler that could build it"
    for path in candidates:
        if path.suffix not in (".so", ".pyd", ".dylib"):
            continue
        try:
            library = ctypes.CDLL(str(path))
            size, *functions = (getattr(library, name) for name in ("hopfield_problem_size", *_FUNCTIONS))
        except (OSError, AttributeError) as error:
            reason = f"{path.name} cannot be loaded: {error}"
            continue
        size.restype = ctypes.c_int64
        if size() != _BACKWARD.size:
            reason = f"{path.name} belongs to another version of the package"
            continue
        for function in functions:
            function.argtypes, function.restype = [ctypes.c_char_p], ctypes.c_int
        return library, None
    logger.warning("the compiled core is not built (%s); pure PyTorch serves instead", reason)
    return None, reason


# Once, when the backends are imported: nothing is searched for while torch.compile traces a call.
_core, missing = find()


def limit_level(level: int) -> str:
    """Use at most this instruction set (0 generic, 1 AVX2, 2 AVX-512, -1 the best there is); returns what is used."""
    return LEVELS[_core.hopfield_level(level)]


def kept_per_row(keys: int) -> int:
    """Entries of the support that a row has room for."""
    if isinstance(keys, int):
        return min(_KEPT_PER_ROW, keys)
    return torch.sym_min(_KEPT_PER_ROW, keys)  # a length that torch.export leaves open


def _vectors(tensor: torch.Tensor) -> tuple[int, ...]:
    """Address and strides of a tensor whose last dimension is contiguous."""
    return tensor.data_ptr(), *tensor.stride()[:3]


def _broadcast(tensor: torch.Tensor, dimensions: int) -> tuple[int, ...]:
    """Address and strides of a tensor that is broadcast: where it has size 1 it does not move."""
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
    beta: torch.Tensor | None,
    alpha: torch.Tensor | None,
    mask: torch.Tensor | None,
    bias: torch.Tensor | None,
    sinks: torch.Tensor | None,
    seed: torch.Tensor | None,
    scaling: float,
    beta_value: float,
    alpha_value: float,
    is_causal: bool,
    sliding_window: int,
    dropout: float,
) -> None:
    """Pack a problem as source/problem.hpp has it and run a function of the core on it."""
    if _core is None:
        raise RuntimeError(f"the compiled core is not built ({missing})")
    batch, heads, queries, head_dim = query.shape
    _, kv_heads, keys, value_dim = value.shape
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
        sliding_window,
        0 if seed is None else int(seed),
        torch.get_num_threads(),
        kept_per_row(keys),
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
    )
    if query.dtype == torch.float64:
        name += "_double"
    if getattr(_core, name)(packed):
        raise MemoryError(f"the compiled core could not allocate its buffers for {keys} keys")


def call_forward(output: torch.Tensor, states: torch.Tensor | None, support: torch.Tensor | None, *problem) -> None:
    """
    Run the forward pass on tensors that the caller keeps alive.

    Args:
        output (`torch.Tensor` of shape `(batch, heads, queries, value_dim)`): Written to.
        states, support (`torch.Tensor`, *optional*): Written to; `None` if there will be no backward pass.
        *problem: Arguments of `_call` from `query` on.
    """
    targets = (output.data_ptr(), *output.stride()[:3], _address(states), _address(support))
    _call("hopfield_forward", _FORWARD, targets, *problem)


def call_backward(written: tuple[torch.Tensor | None, ...], *problem) -> None:
    """
    Run the backward pass on tensors that the caller keeps alive.

    Args:
        written (`tuple`):
            States, support and the gradient of the output, which are read; gradients of query, key and value, and those
            of beta, alpha, bias and sinks or `None`, which are written to.
        *problem: Arguments of `_call` from `query` on.
    """
    states, support, upstream, query, key, value, beta, alpha, bias, sinks = written
    targets = (
        *_NO_VECTORS,
        states.data_ptr(),
        support.data_ptr(),
        *_vectors(upstream),
        *_vectors(query),
        *_vectors(key),
        *_vectors(value),
        *(_NO_SCORES if bias is None else _broadcast(bias, 4)),
        _address(alpha),
        _address(sinks),
        _address(beta),
    )
    _call("hopfield_backward", _BACKWARD, targets, *problem)
