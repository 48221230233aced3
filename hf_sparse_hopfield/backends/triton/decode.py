# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Few queries: when the kernels of `kernels/decode` apply, and their launch."""

from typing import NamedTuple

import torch
from torch import Tensor

from .launch import on_device, padded, rows_together, run_kernel, shared_arguments, strides
from .settings import Settings
from .tiles import Tile, decode_tile, device_kind, processors


class Screen(NamedTuple):
    """
    The tensors of a `KeyScreen`.

    Args:
        codes, scales, bounds (`torch.Tensor`): As the screen has them.
        first (`int`): Place of the first key.
    """

    codes: Tensor
    scales: Tensor
    bounds: Tensor
    first: int


def tile_of(query: Tensor, key: Tensor, value: Tensor) -> Tile | None:
    """The tile for the rows that share a kv head; `None` if they are too many."""
    size = 4 if query.dtype == torch.float32 else 2
    rows = query.shape[1] // key.shape[1] * query.shape[2]
    return decode_tile(device_kind(query.device), size, max(query.shape[3], value.shape[3]), rows)


def applies(query: Tensor, key: Tensor, value: Tensor, settings: Settings) -> bool:
    """Whether the queries are few enough to split their keys over programs."""
    usual = settings.key_segments is None and not settings.dropout and 0 not in (*query.shape, key.shape[2])
    return usual and tile_of(query, key, value) is not None


def _splits(query: Tensor, key: Tensor, tile: Tile) -> tuple[int, int]:
    """Number of splits, and keys of each: enough programs to fill the device twice, and whole tiles."""
    wanted = max(1, 2 * processors(query.device) // (key.shape[0] * key.shape[1]))
    tiles = -(-key.shape[2] // tile.keys)
    split = -(-tiles // min(wanted, tiles)) * tile.keys
    return -(-key.shape[2] // split), split


@on_device
def read_out(
    query: Tensor, key: Tensor, value: Tensor, settings: Settings, dtype: torch.dtype, screen: Screen | None
) -> Tensor:
    """
    One evaluation of the normalizer and the read-out, without gradients, in four launches.

    Args:
        query, key, value, settings, dtype: As for [`launch.forward`].
        screen ([`Screen`], *optional*): The int8 copy of the keys.
    """
    from .kernels import decode as kernels

    batch, heads, queries, _ = query.shape
    output = query.new_empty((batch, heads, queries, value.shape[3]), dtype=dtype)
    query, key, value = map(rows_together, (query, key, value))
    keys, kv_heads = key.shape[2], key.shape[1]
    tile = tile_of(query, key, value)
    assert tile is not None  # `applies` has asked
    splits, split = _splits(query, key, tile)
    scores, top, shift, parts = (
        query.new_empty((batch, heads, queries, *rest), dtype=torch.float32)
        for rest in ((keys,), (splits,), (), (splits, value.shape[3]))
    )
    arguments = shared_arguments(query, key, value, settings) | strides("out", output, 3)
    arguments |= {
        "SCORES": scores,
        "TOP": top,
        "SHIFT": shift,
        "OUT_PARTS": parts,
        "OUT": output,
        "splits": splits,
        "split": split,
        "ROWS": tile.rows,
        "PRECISION": "ieee",  # reading keys takes longer than multiplying them
        "SPLITS": 1 << max(splits - 1, 1).bit_length(),
        "CHUNK": 1024,
    }
    grid = (splits, kv_heads, batch)
    if screen is None:
        run_kernel(kernels.score_keys, grid, tile, arguments)
    else:
        copy = {"CODES": screen.codes, "SCALES": screen.scales, "BOUNDS": screen.bounds}
        run_kernel(
            kernels.screen_keys,
            grid,
            tile,
            arguments | copy | {"first_key": screen.first, "room": screen.scales.shape[2]},
        )
    run_kernel(kernels.find_shift, (queries, heads, batch), None, arguments)
    run_kernel(kernels.read_values, grid, tile, arguments)
    run_kernel(kernels.add_splits, (batch * heads * queries,), None, arguments)
    return output


@on_device
def append_keys(key: Tensor, codes: Tensor, scales: Tensor, bounds: Tensor, first: int) -> None:
    """
    Add keys to the int8 copy of a `KeyScreen`, in one launch.

    Args:
        key (`torch.Tensor` of shape `(batch, kv_heads, keys, head_dim)`): The new keys.
        codes, scales, bounds (`torch.Tensor`): As the screen has them, with room for the keys.
        first (`int`): Place of the first new key.
    """
    from .kernels import quantize as kernels

    key = rows_together(key)
    batch, kv_heads, count, width = key.shape
    arguments = strides("key", key, 3) | {
        "K": key,
        "CODES": codes,
        "SCALES": scales,
        "BOUNDS": bounds,
        "first": first,
        "count": count,
        "width": width,
        "room": scales.shape[2],
        "KV_HEADS": kv_heads,
        "D": padded(width),
        "BN": 64,
    }
    groups = (first + count - 1) // 256 - first // 256 + 1
    run_kernel(kernels.copy_keys, (groups, batch * kv_heads), None, arguments)
