# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The sizes of tiles: a table by kind of device, width of heads and bytes of a number.

Each entry is the largest of some that compile without spilling registers and fit the shared memory, with plain options,
`settings` and `all`; no GPU was needed. docs/gpu_kernels.md has the figures, and
`python -m hf_sparse_hopfield.benchmark.compile_kernels` writes them again.
Whoever has a GPU can measure better ones with `hf-sparse-hopfield bench --device cuda --autotune`, which writes a file that
`HF_SPARSE_HOPFIELD_TILES` names.
"""

import functools
import json
import os
from typing import Any, NamedTuple

import torch


class Tile(NamedTuple):
    """
    How the kernels divide their work. Those of a call have the same rows and keys, because they share lists of tiles.

    Args:
        rows, keys (`int`): Queries and keys of a tile.
        warps, stages (`int`): Warps of a program, and depth of its software pipeline.
        piece (`int`, *optional*, defaults to 128): Entries of a row that are multiplied at a time, at most.
    """

    rows: int
    keys: int
    warps: int
    stages: int
    piece: int = 128


CANDIDATES = 32  # scores that a row may collect before its block looks at whole tiles again
MIN_BLOCKS = 8  # with fewer key blocks, collecting scores does not pay

# What a call asks of the registers: alpha 1.5 or 2 and nothing that changes single scores; any alpha; anything else.
WORKS = ("cheap", "general", "heavy")

# device -> bytes of a number -> work -> for widths up to 64, 128 and 256: rows and keys of a tile, warps, stages.
# Devices: "sm80" (A100), "sm86" (cards with 99 KB of shared memory), "sm90", "sm100", "gfx9", and the interpreter.
Shape = tuple[int, int, int, int] | tuple[int, int, int, int, int]
_SM80: dict[int, dict[str, tuple[Shape, Shape, Shape]]] = {
    2: {
        "cheap": ((64, 32, 8, 1), (64, 64, 8, 1), (64, 32, 8, 1)),
        "general": ((64, 32, 8, 1), (32, 64, 8, 1), (64, 32, 8, 1)),
        "heavy": ((32, 32, 8, 1), (32, 32, 8, 1), (64, 16, 8, 1)),
    },
    4: {
        "cheap": ((32, 32, 8, 1), (32, 32, 8, 1), (32, 16, 8, 2)),
        "general": ((32, 32, 8, 1), (16, 32, 4, 2), (16, 16, 8, 1)),
        "heavy": ((32, 16, 8, 1), (16, 16, 8, 1), (16, 32, 8, 1)),
    },
}
_SM90: dict[int, dict[str, tuple[Shape, Shape, Shape]]] = {
    2: {
        "cheap": ((64, 64, 8, 1), (64, 32, 8, 1), (64, 16, 8, 2)),
        "general": ((64, 32, 8, 2), (64, 32, 4, 1), (64, 32, 8, 1)),
        "heavy": ((32, 32, 8, 1), (32, 32, 8, 1), (32, 32, 8, 1)),
    },
    4: {
        "cheap": ((32, 32, 8, 1), (32, 16, 8, 1), (16, 16, 8, 1)),
        "general": ((32, 32, 8, 1), (32, 16, 8, 1), (32, 16, 8, 1)),
        "heavy": ((32, 16, 8, 1), (32, 16, 8, 1), (16, 16, 8, 1, 16)),
    },
}
_SM100: dict[int, dict[str, tuple[Shape, Shape, Shape]]] = {
    2: {
        "cheap": ((64, 32, 4, 2), (64, 32, 8, 1), (64, 16, 8, 1)),
        "general": ((64, 32, 8, 2), (64, 32, 8, 1), (64, 16, 8, 1)),
        "heavy": ((64, 32, 8, 1), (64, 32, 8, 1), (64, 16, 8, 1)),
    },
    4: {
        "cheap": ((32, 32, 8, 1), (32, 16, 8, 1), (16, 16, 8, 1)),
        "general": ((32, 32, 8, 1), (32, 16, 8, 1), (16, 16, 8, 2)),
        "heavy": ((32, 16, 8, 1), (32, 16, 8, 1), (16, 16, 8, 1)),
    },
}
_GFX9: dict[int, dict[str, tuple[Shape, Shape, Shape]]] = {
    2: {
        "cheap": ((64, 64, 4, 1), (64, 32, 4, 1), (32, 16, 8, 1)),
        "general": ((64, 64, 4, 1), (32, 16, 8, 1), (32, 16, 8, 1)),
        "heavy": ((64, 32, 4, 2), (64, 32, 4, 1), (32, 16, 8, 1)),
    },
    4: {
        "cheap": ((32, 32, 4, 1), (32, 32, 4, 1), (32, 16, 8, 1)),
        "general": ((32, 32, 4, 1), (32, 32, 4, 1), (32, 16, 8, 1)),
        "heavy": ((32, 32, 4, 1), (32, 32, 4, 1), (32, 16, 8, 1)),
    },
}
_INTERPRETER = {size: dict.fromkeys(WORKS, ((16, 16, 1, 1),) * 3) for size in (2, 4)}
_SM86 = {
    2: _SM80[2],
    4: {
        **_SM80[4],
        "cheap": ((32, 32, 8, 1), (32, 16, 8, 1), (32, 16, 8, 1)),
        "general": ((32, 32, 8, 1), (32, 16, 8, 2), (16, 16, 8, 1)),
    },
}
TABLE: dict[str, Any] = {
    "sm80": _SM80,
    "sm86": _SM86,
    "sm90": _SM90,
    "sm100": _SM100,
    "gfx9": _GFX9,
    "interpreter": _INTERPRETER,
}

# Decode: device -> bytes of a number -> rows of the heads that share a kv head, up to -> for widths up to 64, 128 and 256:
# keys of a tile, warps, stages; none if no tile fits the registers.
Few = tuple[int, int, int]
_DECODE: dict[str, dict[int, dict[int, tuple[Few | None, Few | None, Few | None]]]] = {
    "sm80": {
        2: {16: ((32, 4, 2), (32, 4, 2), (32, 4, 2)), 64: ((16, 4, 1), (16, 8, 2), None)},
        4: {16: ((32, 4, 2), (32, 4, 2), (32, 8, 1)), 64: ((32, 8, 1), (16, 8, 1), None)},
    },
    "sm90": {
        2: {16: ((64, 4, 1), (64, 4, 1), (32, 4, 1)), 64: ((32, 8, 1), (32, 8, 1), (32, 8, 1))},
        4: {16: ((32, 4, 2), (32, 4, 2), (32, 8, 1)), 64: ((16, 16, 1), None, None)},
    },
    "sm100": {
        2: {
            16: ((64, 4, 1), (32, 4, 2), (32, 8, 1)),
            32: ((32, 8, 1), (32, 8, 1), (32, 8, 1)),
            64: ((32, 8, 1), (32, 8, 1), (32, 8, 2)),
        },
        4: {16: ((32, 4, 2), (32, 4, 2), (16, 4, 1)), 64: ((16, 16, 1), (16, 8, 1), None)},
    },
    "gfx9": {
        2: {16: ((64, 4, 1), (64, 4, 1), (64, 4, 1)), 64: ((32, 4, 2), (32, 4, 2), (16, 4, 1))},
        4: {16: ((64, 4, 1), (64, 4, 1), (64, 4, 1)), 64: ((32, 4, 2), (32, 4, 2), (16, 4, 1))},
    },
}
_DECODE["sm86"] = {
    2: {16: ((32, 4, 2), (32, 4, 2), (32, 4, 1)), 64: ((16, 8, 1), (16, 8, 2), None)},
    4: {16: _DECODE["sm80"][4][16], 64: ((16, 8, 1), (16, 16, 2), None)},
}
_DECODE["interpreter"] = {size: {16: ((32, 1, 1),) * 3, 64: ((16, 1, 1),) * 3} for size in (2, 4)}


def tile_for(kind: str, size: int, width: int, work: str) -> Tile:
    """
    The tile for a kind of device.

    Args:
        kind (`str`): As [`device_kind`] says.
        size (`int`): Bytes of a number.
        width (`int`): Width of the keys or of the values, the larger one.
        work (`str`): One of `WORKS`.

    Example:

    ```python
    >>> from hf_sparse_hopfield.backends.triton.tiles import tile_for

    >>> tile_for("sm90", 2, 128, "cheap")
    Tile(rows=64, keys=32, warps=8, stages=1, piece=128)
    ```
    """
    place = 0 if width <= 64 else 1 if width <= 128 else 2
    measured = _measured().get(f"{kind}/{size}/{work}/{(64, 128, 256)[place]}")
    return Tile(*(measured or TABLE[kind][size][work][place]))


def decode_tile(kind: str, size: int, width: int, rows: int) -> Tile | None:
    """
    The tile for few queries; `None` if they are too many.

    Args:
        kind, size, width: As for [`tile_for`].
        rows (`int`): Queries of all heads that share a kv head, together.

    Example:

    ```python
    >>> from hf_sparse_hopfield.backends.triton.tiles import decode_tile

    >>> decode_tile("sm90", 2, 128, rows=4)
    Tile(rows=16, keys=64, warps=4, stages=1, piece=128)
    >>> decode_tile("sm90", 2, 128, rows=100)
    ```
    """
    place = 0 if width <= 64 else 1 if width <= 128 else 2
    for most, shapes in _DECODE[kind][size].items():
        shape = shapes[place]
        if rows <= most and shape is not None:
            return Tile(max(16, 1 << (rows - 1).bit_length()), *shape)
    return None


@functools.cache
def _measured() -> dict[str, list[int]]:
    """Tiles that were measured on this machine."""
    path = os.environ.get("HF_SPARSE_HOPFIELD_TILES")
    if not path:
        return {}
    with open(path, encoding="utf-8") as file:
        return json.load(file)


@functools.cache
def device_kind(device: torch.device) -> str:
    """
    The kind of a device in the table.

    Args:
        device (`torch.device`): A CUDA or ROCm device; any other one is taken for Triton's interpreter.
    """
    if device.type != "cuda" or not torch.cuda.is_available():
        return "interpreter" if device.type != "cuda" else "sm80"
    if torch.version.hip:
        return "gfx9"
    major, minor = torch.cuda.get_device_capability(device)
    if major >= 10:
        return "sm100" if major == 10 else "sm86"
    return "sm90" if major == 9 else "sm86" if (major, minor) > (8, 0) else "sm80"


@functools.cache
def processors(device: torch.device) -> int:
    """Multiprocessors of a device; those of an A100 where there is none to ask."""
    if device.type != "cuda" or not torch.cuda.is_available():
        return 4 if device.type != "cuda" else 108
    return torch.cuda.get_device_properties(device).multi_processor_count
