# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""How many tiles the kernels visit after their first look at all scores."""

import torch
from torch import Tensor

from ...backends.triton.launch import Kept, tile_of
from ...backends.triton.settings import Settings
from ..work import Work


def visible_tiles(queries: int, keys: int, rows: int, width: int, is_causal: bool) -> int:
    """
    The tiles of one head in which a query sees a key.

    Args:
        queries, keys (`int`): Numbers of queries and keys.
        rows, width (`int`): Queries and keys of a tile.
        is_causal (`bool`): Whether queries see only earlier keys.

    Example:

    ```python
    >>> from hf_sparse_hopfield.benchmark.gpu.tiles_visited import visible_tiles

    >>> visible_tiles(256, 256, 64, 64, False), visible_tiles(256, 256, 64, 64, True)
    (16, 10)
    ```
    """
    blocks = -(-keys // width)
    if not is_causal:
        return -(-queries // rows) * blocks
    last_rows = (min(start + rows, queries) - 1 for start in range(0, queries, rows))
    last_keys = (row + keys - queries for row in last_rows)
    return sum(min(max(last // width + 1, 0), blocks) for last in last_keys)


def share_visited(work: Work, tensors: tuple[Tensor, Tensor, Tensor]) -> float:
    """
    The tiles that a forward pass reads values for, divided by those in which a query sees a key.

    Args:
        work ([`Work`]): The work; not a decode.
        tensors (`tuple[torch.Tensor, ...]`): Its query, key and value.
    """
    query, key, value = (tensor.detach() for tensor in tensors)
    settings = Settings(
        **{
            **dict.fromkeys(Settings._fields),
            "scaling": work.head_dim**-0.5,
            "beta_value": 1.0,
            "alpha_value": work.alpha,
            "is_causal": work.is_causal,
            "window": 0,
            "softcap": 0.0,
            "dropout": 0.0,
        }
    )
    with torch.no_grad():
        _, *kept = torch.ops.hf_sparse_hopfield.triton_forward(query, key, value, *settings, value.dtype, False)
    tile = tile_of(query, value, settings)
    visible = visible_tiles(query.shape[2], key.shape[2], tile.rows, tile.keys, work.is_causal)
    return Kept(*kept).counts.sum().item() / (query.shape[0] * query.shape[1] * visible)
