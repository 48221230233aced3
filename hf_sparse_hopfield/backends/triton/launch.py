# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Launches the kernels: allocates what they write, and hands them pointers, strides and the sizes of tiles."""

import contextlib
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..blocked.gradients import Wanted
from .settings import Settings
from .tiles import CANDIDATES, MIN_BLOCKS, Tile, device_kind, tile_for


# Entries of a row that are multiplied at a time, by bytes of a number: more do not fit the registers.
PIECES = {2: 128, 4: 32}


class Kept(NamedTuple):
    """
    What the forward pass leaves for the backward pass.

    Args:
        maximum, shift (`torch.Tensor` of shape `(batch, heads, queries)`): Largest score of a row, and its shift.
        lists (`torch.Tensor` of shape `(batch, heads, row_blocks, blocks)`), counts (`(batch, heads, row_blocks)`):
            The key blocks that can have weight for each block of rows.
        columns (`torch.Tensor` of shape `(batch, heads, blocks, row_blocks)`), column_counts (`(batch, heads, blocks)`):
            The row blocks in which each key block has weight.
        flags (`torch.Tensor` of shape `(batch, heads, row_blocks, blocks)`): The same as a matrix.
    """

    maximum: Tensor
    shift: Tensor
    lists: Tensor
    counts: Tensor
    columns: Tensor
    column_counts: Tensor
    flags: Tensor


def interpreted() -> bool:
    """Whether Triton's interpreter runs the kernels, on the CPU; it is slow and meant for tests."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def padded(width: int) -> int:
    """The width of a tile for a width of heads."""
    return max(16, 1 << (width - 1).bit_length())


def precision() -> str:
    """How float32 is multiplied: three times in tf32 is as exact as float32 and runs on tensor cores."""
    return "ieee" if interpreted() or torch.version.hip else "tf32x3"


def run_kernel(kernel: Any, grid: Sequence[int], tile: Tile | None, arguments: dict[str, Any]) -> None:
    """
    Launch a kernel with those of `arguments` that it has.

    Args:
        kernel (`triton.JITFunction`): The kernel.
        grid (`Sequence[int]`): Number of programs.
        tile ([`Tile`], *optional*): Sizes of tiles, warps and stages.
        arguments (`dict`): More than the arguments of the kernel, by name.
    """
    if tile is not None:
        pieces: dict[str, int] = {
            name: min(arguments[name], tile.piece) for name in ("PIECE", "VALUE_PIECE") if name in arguments
        }
        arguments = {**arguments, **pieces, "BM": tile.rows, "BN": tile.keys}
    own = {name: arguments[name] for name in kernel.arg_names}
    options = {} if tile is None else {"num_warps": tile.warps, "num_stages": tile.stages}
    kernel[tuple(grid)](**own, **options)


def on_device(function: Callable) -> Callable:
    """Make the device of the first tensor the current one: Triton launches there, and a model may be spread over several."""

    def guarded(first: Tensor, *rest: Any) -> Any:
        there = first.device.type == "cuda" and torch.cuda.is_available()
        with torch.cuda.device(first.device) if there else contextlib.nullcontext():
            return function(first, *rest)

    return guarded


def rows_together(tensor: Tensor) -> Tensor:
    """A tensor whose last dimension lies together, as the kernels read it."""
    if interpreted() and tensor.dtype == torch.bfloat16:  # the interpreter multiplies the bits of bfloat16
        tensor = tensor.float()
    return tensor if tensor.stride(-1) == 1 or tensor.shape[-1] == 1 else tensor.contiguous()


def strides(name: str, tensor: Tensor | None, count: int = 4) -> dict[str, int]:
    """The first strides of a tensor by name; 0 where it broadcasts."""
    parts = ("batch", "head", "row", "key")[:count]
    if tensor is None:
        return {f"{name}_{part}": 0 for part in parts}
    steps = zip(parts, tensor.shape, tensor.stride(), strict=False)
    return {f"{name}_{part}": 0 if size == 1 else step for part, size, step in steps}


def shared_arguments(query: Tensor, key: Tensor, value: Tensor, settings: Settings) -> dict[str, Any]:
    """The arguments that the kernels have in common, by name."""
    mask = settings.mask
    if mask is not None:
        mask = mask.view(torch.uint8) if mask.dtype == torch.bool else mask
    arguments: dict[str, Any] = {
        "Q": query,
        "K": key,
        "V": value,
        "MASK": mask,
        "BIAS": settings.bias,
        "SINKS": settings.sinks,
        "BETA": settings.beta,
        "ALPHA": settings.alpha,
        "QUERY_SEGMENTS": settings.query_segments,
        "KEY_SEGMENTS": settings.key_segments,
        "SEED": settings.seed,
        "scaling": settings.scaling,
        "beta_value": settings.beta_value,
        "alpha_value": settings.alpha_value,
        "softcap": settings.softcap or 1.0,
        "dropout": settings.dropout,
        "batches": query.shape[0],
        "queries": query.shape[2],
        "keys": key.shape[2],
        "window": settings.window,
        "width": query.shape[3],
        "value_width": value.shape[3],
        "HEADS": query.shape[1],
        "GROUPS": query.shape[1] // key.shape[1],
        "D": padded(query.shape[3]),
        "DV": padded(value.shape[3]),
        "CAUSAL": settings.is_causal,
        "WINDOWED": settings.is_causal and settings.window > 0,
        "MASK_ROWS": mask is not None and mask.shape[2] > 1,
        "SOFTCAP": settings.softcap > 0,
        "MEMBER": settings.member,
        "PRECISION": precision(),
        "PIECE": min(PIECES[query.element_size()], padded(query.shape[3])),
        "VALUE_PIECE": min(PIECES[query.element_size()], padded(value.shape[3])),
        "PRECISE": not query.dtype == key.dtype == value.dtype or query.dtype == torch.float32,
    }
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        arguments |= strides(name, tensor, 3)
    arguments |= strides("mask", mask) | strides("bias", settings.bias)
    arguments |= strides("beta", settings.beta, 3) | strides("alpha", settings.alpha, 3)
    for name, segments in (("query", settings.query_segments), ("key", settings.key_segments)):
        arguments[f"{name}_segment"] = 0 if segments is None or segments.shape[0] == 1 else segments.stride(0)
    return arguments


def tile_of(query: Tensor, value: Tensor, settings: Settings) -> Tile:
    """The tile for the device, dtype, widths and options of a call."""
    size = 4 if query.dtype == torch.float32 else 2
    return tile_for(device_kind(query.device), size, max(query.shape[3], value.shape[3]), settings.work)


def kept_shapes(query: Tensor, key: Tensor, tile: Tile, keep: bool) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    """Shapes and dtypes of [`Kept`]; what is not needed has none."""
    batch, heads, queries, _ = query.shape
    row_blocks, blocks = -(-queries // tile.rows), -(-key.shape[2] // tile.keys)
    number = torch.int16 if max(blocks, row_blocks) < 2**15 else torch.int32
    back = 1 if keep else 0
    return {
        "maximum": ((batch, heads, queries), torch.float32),
        "shift": ((batch, heads, queries), torch.float32),
        "lists": ((batch, heads, row_blocks, blocks), number),
        "counts": ((batch, heads, row_blocks), torch.int32),
        "columns": ((batch * back, heads, blocks, row_blocks), number),
        "column_counts": ((batch * back, heads, blocks), torch.int32),
        "flags": ((batch * back, heads, row_blocks, blocks), torch.int8),
    }


@on_device
def forward(
    query: Tensor, key: Tensor, value: Tensor, settings: Settings, dtype: torch.dtype, keep: bool
) -> tuple[Tensor, Kept]:
    """
    One evaluation of the normalizer and the read-out.

    Args:
        query, key, value (`torch.Tensor`): As in `RetrievalProblem`.
        settings ([`Settings`]): The settings.
        dtype (`torch.dtype`): Dtype of the output.
        keep (`bool`): Whether a backward pass follows.
    """
    from .kernels import forward as kernels

    tile = tile_of(query, value, settings)
    shapes = kept_shapes(query, key, tile, keep)
    output = query.new_empty((*query.shape[:3], value.shape[3]), dtype=dtype)
    kept = Kept(**{name: query.new_empty(shape, dtype=kind) for name, (shape, kind) in shapes.items()})
    if 0 in output.shape or key.shape[2] == 0:
        for tensor in (output, kept.maximum, kept.shift, kept.counts, kept.column_counts, kept.flags):
            tensor.zero_()
        return output, kept
    query, key, value = map(rows_together, (query, key, value))
    batch, heads, row_blocks, blocks = kept.lists.shape
    candidates = CANDIDATES if blocks >= MIN_BLOCKS else 0
    found = (
        query.new_empty((2, batch, heads, query.shape[2], candidates), dtype=torch.int32)
        if candidates
        else (None, None)
    )
    arguments = shared_arguments(query, key, value, settings) | strides("out", output, 3)
    arguments |= {
        "MAXIMUM": kept.maximum,
        "SHIFT": kept.shift,
        "LIST": kept.lists,
        "COUNT": kept.counts,
        "FLAGS": kept.flags if keep else None,
        "FOUND": found[0],
        "SCORES": None if found[1] is None else found[1].view(torch.float32),
        "OUT": output,
        "blocks": blocks,
        "CANDIDATES": candidates,
        "CHUNK": min(32, padded(value.shape[3])),
    }
    grid = (row_blocks, heads, batch)
    run_kernel(kernels.survey, grid, tile, arguments)
    run_kernel(kernels.solve, grid, tile, arguments)
    if keep:
        lists = {"FLAGS": kept.flags, "LIST": kept.columns, "COUNT": kept.column_counts}
        sizes = {"row_blocks": row_blocks, "blocks": blocks, "CHUNK": 32}
        run_kernel(kernels.transpose, (blocks, heads * batch), None, lists | sizes)
    return output, kept


@on_device
def backward(
    grad: Tensor, kept: Kept, wanted: Wanted, query: Tensor, key: Tensor, value: Tensor, settings: Settings
) -> tuple[Tensor | None, ...]:
    """
    The gradients, in the order of [`Wanted`]; `None` for those that nothing asks for.

    Args:
        grad (`torch.Tensor` of shape `(batch, heads, queries, value_dim)`): The upstream gradient.
        kept ([`Kept`]): What the forward pass left.
        wanted ([`Wanted`]): The gradients to compute.
        query, key, value, settings: As for [`forward`].
    """
    from .kernels import backward as kernels

    if 0 in grad.shape or key.shape[2] == 0:
        tensors = (query, key, value, settings.beta, settings.alpha, settings.bias, settings.sinks)
        return tuple(
            torch.zeros_like(t) if t is not None and need else None for t, need in zip(tensors, wanted, strict=True)
        )
    tile = tile_of(query, value, settings)
    grads = dict.fromkeys(Wanted._fields)
    grads["query"] = query.new_empty(query.shape)
    if wanted.key or wanted.value:
        grads["key"], grads["value"] = key.new_empty(key.shape), value.new_empty(value.shape)
    query, key, value, grad = map(rows_together, (query, key, value, grad))
    batch, heads, row_blocks, blocks = kept.lists.shape
    queries = query.shape[2]
    each_row = any(setting is not None and setting.shape[2] > 1 for setting in (settings.beta, settings.alpha))
    in_parts = wanted.beta or wanted.alpha or wanted.sinks
    parts = (
        query.new_empty((3, batch, heads, queries if each_row else row_blocks), dtype=torch.float32)
        if in_parts
        else None
    )
    mean = torch.empty_like(kept.shift)
    arguments = shared_arguments(query, key, value, settings) | strides("grad", grad, 3)
    arguments |= {
        "MAXIMUM": kept.maximum,
        "SHIFT": kept.shift,
        "LIST": kept.lists,
        "COUNT": kept.counts,
        "FLAGS": kept.flags,
        "GRAD": grad,
        "GRAD_Q": grads["query"],
        "MEAN": mean,
        "PARTS": parts,
        "blocks": blocks,
        "row_blocks": row_blocks,
        "parts": 0 if parts is None else parts[0].numel(),
        "PRECISE": arguments["PRECISE"] or grad.dtype != query.dtype,
        "WANT_BETA": wanted.beta,
        "WANT_ALPHA": wanted.alpha,
        "EACH_ROW": each_row,
    }
    run_kernel(kernels.grad_rows, (row_blocks, heads, batch), tile, arguments)
    if grads["key"] is not None:
        lists = {"LIST": kept.columns, "COUNT": kept.column_counts, "GRAD_K": grads["key"], "GRAD_V": grads["value"]}
        run_kernel(kernels.grad_keys, (blocks, key.shape[1], batch), tile, arguments | lists)
    if parts is not None:
        grads |= _setting_grads(parts, settings, wanted, each_row)
    if wanted.bias:
        grads["bias"] = _bias_grad(arguments, settings.bias, tile)
    return tuple(grads[name] if need else None for name, need in zip(Wanted._fields, wanted, strict=True))


def _setting_grads(parts: Tensor, settings: Settings, wanted: Wanted, each_row: bool) -> dict[str, Tensor]:
    """Gradients of beta, alpha and sinks from the parts of row blocks, or of rows."""
    from .kernels import backward as kernels

    _, batch, heads, count = parts.shape
    tensors = {"beta": settings.beta, "alpha": settings.alpha, "sinks": settings.sinks}
    grads = {name: torch.empty_like(tensors[name]) for name in tensors if getattr(wanted, name)}  # type: ignore[arg-type]
    if each_row:  # rare: a setting of each row, which torch sums to its shape
        for number, name in enumerate(tensors):
            if name in grads:
                whole = (
                    parts[number].sum((0, 2))
                    if name == "sinks"
                    else parts[number, ..., None].sum_to_size(grads[name].shape)
                )
                grads[name] = whole.to(grads[name].dtype)
        return grads
    sizes = {f"{name}_{part}": grads[name].shape[place] if name in grads else 0
             for name in ("beta", "alpha") for place, part in enumerate(("batches", "heads"))}  # fmt: skip
    arguments = {
        "PARTS": parts,
        "BETA_GRAD": grads.get("beta"),
        "ALPHA_GRAD": grads.get("alpha"),
        "SINK_GRAD": grads.get("sinks"),
        "batches": batch,
        "row_blocks": count,
        "parts": parts[0].numel(),
        "HEADS": heads,
        "CHUNK": 128,
    }
    largest = max([heads, *(sizes[f"{name}_batches"] * sizes[f"{name}_heads"] for name in ("beta", "alpha"))])
    run_kernel(kernels.sum_parts, (3, largest), None, arguments | sizes)
    return grads


def _bias_grad(arguments: dict[str, Any], bias: Tensor | None, tile: Tile) -> Tensor:
    from .kernels import backward as kernels

    assert bias is not None
    grad = torch.empty(bias.shape, dtype=bias.dtype, device=bias.device)
    batches, heads, queries, keys = bias.shape
    by_row, by_key = queries > 1, keys > 1
    own = {"GRAD_BIAS": grad, "own_batches": batches, "own_heads": heads, "own_queries": queries, "own_keys": keys}
    grid = (arguments["row_blocks"] if by_row else 1, arguments["blocks"] if by_key else 1, batches * heads)
    run_kernel(kernels.grad_bias, grid, tile, arguments | own | {"BIAS_ROWS": by_row, "BIAS_KEYS": by_key})
    return grad
