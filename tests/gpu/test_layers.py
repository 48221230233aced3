# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The layers and the memory compute on a GPU what they compute on a CPU."""

import pytest
import torch

from hf_sparse_hopfield import (
    HopfieldMemory,
    PolynomialMemory,
    SparseHopfield,
    SparseHopfieldLayer,
    SparseHopfieldPooling,
)

from ..layers.formula import scramble
from .comparing import assert_same, assert_same_module, moved


pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("exact")]
OPTIONS = {
    "dense": {"alpha": 1.0},
    "entmax15": {"alpha": 1.5},
    "steps": {"alpha": 1.5, "update_steps_max": 2},
    "learned": {"alpha": 1.5, "learn_alpha": True, "learn_beta": True},
    "heads": {"alpha": (1.25, 1.5), "beta": (1.0, 2.0), "concat_bias_pattern": True, "add_zero_association": True},
}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", [SparseHopfield, SparseHopfieldPooling, SparseHopfieldLayer])
def test_layers(kind, options, device):
    layer = kind(16, num_heads=2, **OPTIONS[options], **({} if kind is SparseHopfield else {"quantity": 40}))
    scramble(layer)
    inputs = torch.randn(3, 70, 16)
    padding = torch.rand(3, 40 if kind is SparseHopfieldLayer else 70) < 0.3
    assert_same_module(layer, lambda layer, place: layer(inputs.to(place), padding.to(place)), device)


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
def test_memory(alpha, device):
    patterns = torch.nn.functional.normalize(torch.randn(3000, 64), dim=1)
    queries = patterns[:50] + 0.02 * torch.randn(50, 64)
    memory = HopfieldMemory(patterns, alpha=alpha, beta=30.0)
    there = HopfieldMemory(patterns, alpha=alpha, beta=30.0).to(device)
    for steps in (1, 3):
        assert_same(there.retrieve(queries.to(device), steps=steps), memory.retrieve(queries, steps=steps), str(steps))
    if alpha > 1:
        expected, found = memory.search(queries), there.search(queries.to(device))
        assert torch.equal(found.rows[:, 0].cpu(), expected.rows[:, 0])
        assert_same(found.weights[:, 0], expected.weights[:, 0])
    assert_same(there.energy(queries.to(device)), memory.energy(queries))
    there.add(-patterns[:2].to(device))
    there.remove(0)
    assert len(there) == 3001 and there.patterns.device.type == device


def test_a_memory_on_disk_loads_onto_the_device(device, tmp_path):
    patterns = torch.randn(400, 32).sign()
    memory = HopfieldMemory(patterns, beta=0.5).to(device)
    memory.save(tmp_path / "memory")
    again = HopfieldMemory.load(tmp_path / "memory").to(device)
    damaged = patterns[:10].clone()
    damaged[:, 24:] = 0
    assert torch.equal(again.retrieve(damaged.to(device)).cpu(), patterns[:10])


def test_polynomial_memory(device):
    patterns = torch.randn(40, 64).sign()
    queries = patterns[:5].clone()
    queries[:, :8] *= -1
    memory = PolynomialMemory(patterns)
    there = PolynomialMemory(patterns).to(device)
    assert_same(there.retrieve(queries.to(device)), memory.retrieve(queries))


@pytest.mark.parametrize("kind", [SparseHopfield, SparseHopfieldLayer])
def test_half_precision(kind, device):
    layer = kind(16, num_heads=2, alpha=1.5, **({} if kind is SparseHopfield else {"quantity": 40}))
    scramble(layer)
    inputs = torch.randn(3, 70, 16)
    expected = layer(inputs)
    half = layer.to(device, torch.bfloat16)(moved(inputs, device).bfloat16())
    assert half.dtype == torch.bfloat16
    assert_same(half, expected, "", 5e-2)
