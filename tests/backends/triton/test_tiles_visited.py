# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The passes after the survey visit the tiles that have weight, and no others."""

import pytest
import torch

from hf_sparse_hopfield import retrieve
from hf_sparse_hopfield.backends import RetrievalProblem
from hf_sparse_hopfield.backends.triton import _settings, launch

from .conditions import DEVICE, needs_kernels


pytestmark = needs_kernels


def structured(length, width=16, run=32):
    """Queries and keys of topics that last for `run` tokens: weights lie in few tiles."""
    generator = torch.Generator().manual_seed(0)
    topics = torch.nn.functional.normalize(torch.randn(8, width, generator=generator), dim=-1) * 12
    topic = torch.randint(8, (length // run,), generator=generator).repeat_interleave(run)
    key = topics[topic] + 0.3 * torch.randn(length, width, generator=generator)
    return (key.view(1, 1, length, width).to(DEVICE) for _ in range(2))


def flags_with_weight(query, key, tile, options):
    """By definition: the tiles in which some weight is positive."""
    _, weights = retrieve(query, key, key, return_weights=True, backend="reference", **options)
    rows, columns = (-(-n // size) for n, size in zip(weights.shape[2:], (tile.rows, tile.keys), strict=True))
    padding = (0, columns * tile.keys - weights.shape[3], 0, rows * tile.rows - weights.shape[2])
    padded = torch.nn.functional.pad(weights, padding)
    return (padded.view(1, 1, rows, tile.rows, columns, tile.keys) > 0).any(5).any(3)


@pytest.mark.parametrize(
    "options", [{"alpha": 2.0, "is_causal": True}, {"alpha": 1.5}, {"alpha": 1.3, "is_causal": True}]
)
def test_structured(options):
    query, key = structured(192)
    problem = RetrievalProblem(query, key, key, scaling=0.25, **options)
    settings = _settings(problem, query, 0.0)
    _, kept = launch.forward(query, key, key, settings, torch.float32, True)
    expected = flags_with_weight(query, key, launch.tile_of(query, key, settings), options)
    assert torch.equal(kept.flags.bool(), expected)
    assert expected.float().mean() < 0.35
    assert kept.counts.sum() == expected.sum()  # the last pass of the forward, and all of the backward
    assert kept.column_counts.sum() == expected.sum()
    for block in range(kept.columns.shape[2]):
        listed = kept.columns[0, 0, block, : kept.column_counts[0, 0, block]]
        assert listed.tolist() == expected[0, 0, :, block].nonzero().flatten().tolist()


def test_scattered_rows_take_lists_of_candidates(monkeypatch):
    """Unstructured rows have weight in nearly all tiles, but few candidates: they are read from lists."""
    generator = torch.Generator().manual_seed(0)
    query, key = (torch.randn(1, 1, n, 16, generator=generator).to(DEVICE) for n in (16, 256))
    problem = RetrievalProblem(query * 6, key, key, scaling=0.25, alpha=2.0)
    settings = _settings(problem, query, 0.0)
    tiles = {}
    for candidates in (32, 1):  # 1: no row has so few
        monkeypatch.setattr(launch, "CANDIDATES", candidates)
        output, kept = launch.forward(query * 6, key, key, settings, torch.float32, True)
        expected = retrieve(query * 6, key, key, alpha=2.0, backend="reference")
        torch.testing.assert_close(output, expected, atol=1e-5, rtol=1e-5)
        tiles[candidates] = kept.flags.sum().item()
    assert tiles[32] == tiles[1]
