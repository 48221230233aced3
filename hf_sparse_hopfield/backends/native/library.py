# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Finds the compiled core and calls it: plain pointers over ctypes, nothing of torch's C++ interface."""

import ctypes
import logging
import os
import struct
from pathlib import Path

import torch


logger = logging.getLogger(__name__)

# As in source/problem.hpp: rows of a block, and 32-bit numbers that are kept of a row.
BLOCK_ROWS = 32
ROW_STATE = 4
LEVELS = ("generic", "AVX2", "AVX-512")

_NO_VECTORS = (0, 0, 0, 0)
# Sizes and flags (12), vectors (3 x 4), settings (2 x 4), mask and bias (2 x 5), sinks, output (4), states, support,
# gradients (4 x 4), gradient of the bias (5), of alpha, sinks and beta (3), and four reals.
_LAYOUT = struct.Struct("=73q4d")


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
    reason = "no C++ compiler was found when the package was installed"
    for path in candidates:
        if path.suffix not in (".so", ".pyd", ".dylib"):
            continue
        try:
            library = ctypes.CDLL(str(path))
            size = library.hopfield_problem_size
        except (OSError, AttributeError) as error:
            reason = f"{path.name} cannot be loaded: {error}"
            continue
        size.restype = ctypes.c_int64
        if size() != _LAYOUT.size:
            reason = f"{path.name} belongs to another version of the package"
            continue
        for name in ("hopfield_forward", "hopfield_backward"):
            function = getattr(library, name)
            function.argtypes, function.restype = [ctypes.c_char_p], ctypes.c_int
        return library, None
    logger.warning("the compiled core is not built (%s); pure PyTorch serves instead", reason)
    return None, reason


# Once, when the backends are imported: nothing is searched for while torch.compile traces a call.
_core, missing = find()


def limit_level(level: int) -> str:
    """Use at most this instruction set (0 generic, 1 AVX2, 2 AVX-512, -1 the best there is); returns what is used."""
    return LEVELS[_core.hopfield_level(level)]


def _vectors(tensor: torch.Tensor | None) -> tuple[int, ...]:
    """Address and strides of a tensor whose last dimension is contiguous."""
    return _NO_VECTORS if tensor is None else (tensor.data_ptr(), *tensor.stride()[:3])


def _broadcast(tensor: torch.Tensor | None, dimensions: int) -> tuple[int, ...]:
    """Address and strides of a tensor that is broadcast: where it has size 1 it does not move."""
    if tensor is None:
        return (0,) * (dimensions + 1)
    strides = [0 if size == 1 else stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)]
    return (tensor.data_ptr(), *strides[:dimensions])


def _address(tensor: torch.Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def call(
    function: str,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    beta: torch.Tensor | None,
    alpha: torch.Tensor | None,
    mask: torch.Tensor | None,
    bias: torch.Tensor | None,
    sinks: torch.Tensor | None,
    scaling: float,
    beta_value: float,
    alpha_value: float,
    is_causal: bool,
    sliding_window: int,
    dropout: float,
    seed: int,
    support_per_row: int,
    states: torch.Tensor | None = None,
    support: torch.Tensor | None = None,
    output: torch.Tensor | None = None,
    output_gradient: torch.Tensor | None = None,
    query_gradient: torch.Tensor | None = None,
    key_gradient: torch.Tensor | None = None,
    value_gradient: torch.Tensor | None = None,
    bias_gradient: torch.Tensor | None = None,
    alpha_gradient: torch.Tensor | None = None,
    sink_gradient: torch.Tensor | None = None,
    beta_gradient: torch.Tensor | None = None,
) -> None:
    """Run `hopfield_forward` or `hopfield_backward` on tensors that the caller keeps alive; see source/problem.hpp."""
    if _core is None:
        raise RuntimeError(f"the compiled core is not built ({missing})")
    batch, heads, queries, head_dim = query.shape
    packed = _LAYOUT.pack(
        batch,
        heads,
        key.shape[1],
        queries,
        key.shape[2],
        head_dim,
        value.shape[3],
        is_causal,
        sliding_window,
        seed,
        torch.get_num_threads(),
        support_per_row,
        *_vectors(query),
        *_vectors(key),
        *_vectors(value),
        *_broadcast(beta, 3),
        *_broadcast(alpha, 3),
        *_broadcast(mask, 4),
        *_broadcast(bias, 4),
        _address(sinks),
        *_vectors(output),
        _address(states),
        _address(support),
        *_vectors(output_gradient),
        *_vectors(query_gradient),
        *_vectors(key_gradient),
        *_vectors(value_gradient),
        *_broadcast(bias_gradient, 4),
        _address(alpha_gradient),
        _address(sink_gradient),
        _address(beta_gradient),
        scaling,
        beta_value,
        alpha_value,
        dropout,
    )
    if getattr(_core, function)(packed):
        raise MemoryError(f"the compiled core could not allocate its buffers for {key.shape[2]} keys")
