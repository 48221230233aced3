# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The tiles that are visited are counted."""

import pytest
import torch

from hf_sparse_hopfield import retrieve
from hf_sparse_hopfield.backends.triton.tiles import device_kind, tile_for
from hf_sparse_hopfield.benchmark import Work
from hf_sparse_hopfield.benchmark.gpu.tiles_visited import share_visited, visible_tiles

from ...backends.triton.conditions import DEVICE, needs_kernels


@pytest.mark.parametrize(("queries", "keys"), [(100, 100), (40, 100), (100, 40), (1, 64)])
@pytest.mark.parametrize("is_causal", [True, False])
def test_visible_tiles_by_definition(queries, keys, is_causal):
    sees = torch.ones(queries, keys, dtype=torch.bool)
    if is_causal:
        sees = sees.tril(keys - queries)
    padded = torch.nn.functional.pad(sees, (0, -keys % 16, 0, -queries % 32))
    expected = padded.unflatten(1, (-1, 16)).unflatten(0, (-1, 32)).any(3).any(1).sum()
    assert visible_tiles(queries, keys, 32, 16, is_causal) == expected


class TestShare:
    pytestmark = needs_kernels

    def test_no_tile_with_weight_is_missing_and_most_others_are(self):
        work = Work("forward", 1, 1, 192, 2.0, 2, is_causal=True, head_dim=16, inputs="local")
        tensors = work.tensors(DEVICE)
        tile = tile_for(device_kind(torch.device(DEVICE)), 4, 16, "cheap")
        _, weights = retrieve(*tensors, is_causal=True, return_weights=True)
        padded = torch.nn.functional.pad(weights[0, 0], (0, -192 % tile.keys, 0, -192 % tile.rows))
        has_weight = padded.unflatten(1, (-1, tile.keys)).unflatten(0, (-1, tile.rows)).sum((1, 3)) > 0
        least = has_weight.sum().item() / visible_tiles(192, 192, tile.rows, tile.keys, True)
        assert least <= share_visited(work, tensors) < least + 0.15 < 1
