# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""What PyTorch does with modules works for the layers: compile, export, state dicts, deepcopy, pickling, checkpointing."""

import copy
import io

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from hf_sparse_hopfield import (
    HopfieldMemory,
    PolynomialMemory,
    SparseHopfield,
    SparseHopfieldLayer,
    SparseHopfieldPooling,
)

from .formula import scramble


OPTIONS = {
    "dense": {"alpha": 1.0},
    "sparse": {"alpha": 2.0, "update_steps_max": 2},
    "learned": {"alpha": 1.5, "learn_alpha": True, "learn_beta": True},
    "per_head": {
        "alpha": (1.0, 2.0),
        "beta": (1.0, 2.0),
        "scaling": (0.5, 1.0),
        "concat_bias_pattern": True,
        "add_zero_association": True,
        "normalize_hopfield_space": True,
    },
}


def build(kind, name):
    layer = kind(8, num_heads=2, **OPTIONS[name], **({} if kind is SparseHopfield else {"quantity": 3}))
    scramble(layer)
    return layer


KINDS = [SparseHopfield, SparseHopfieldPooling, SparseHopfieldLayer]


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_compile(kind, name):
    layer = build(kind, name)
    x = torch.randn(2, 5, 8)
    stored = 3 if kind is SparseHopfieldLayer else 5
    mask = torch.rand(2, stored) < 0.3
    mask[1] = True
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, mask), layer(x, mask))
    layer(x, mask).square().sum().backward()
    expected = {parameter: value.grad for parameter, value in layer.named_parameters()}
    layer.zero_grad()
    compiled(x, mask).square().sum().backward()
    for parameter, value in layer.named_parameters():
        torch.testing.assert_close(value.grad, expected[parameter])


def test_compile_with_the_batch_second_and_static_patterns():
    layer = SparseHopfield(
        8,
        hidden_size=8,
        num_heads=2,
        batch_first=False,
        stored_pattern_as_static=True,
        state_pattern_as_static=True,
        pattern_projection_as_static=True,
        normalize_hopfield_space=True,
        disable_out_projection=True,
    )
    x = torch.randn(5, 2, 8, requires_grad=True)
    expected = torch.autograd.grad(layer(x).square().sum(), x)
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), layer(x))
    torch.testing.assert_close(torch.autograd.grad(compiled(x).square().sum(), x), expected)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_compile_inductor(kind):
    layer = build(kind, "sparse")
    x = torch.randn(2, 5, 8)
    torch.testing.assert_close(torch.compile(layer, fullgraph=True)(x), layer(x))


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_export(kind, name):
    layer = build(kind, name).eval()
    batch = torch.export.Dim("batch", min=2, max=64)
    exported = torch.export.export(layer, (torch.randn(3, 5, 8),), dynamic_shapes=({0: batch},), strict=False).module()
    for size in (3, 7):
        x = torch.randn(size, 5, 8)
        torch.testing.assert_close(exported(x), layer(x))


def test_export_with_a_tuple_of_inputs_and_masks():
    layer = build(SparseHopfield, "sparse").eval()
    inputs = (torch.randn(2, 6, 8), torch.randn(2, 4, 8), torch.randn(2, 6, 8))
    padding, association = torch.rand(2, 6) < 0.3, torch.rand(4, 6) < 0.3
    exported = torch.export.export(layer, (inputs, padding, association)).module()
    torch.testing.assert_close(exported(inputs, padding, association), layer(inputs, padding, association))


@pytest.mark.parametrize("kind", [HopfieldMemory, PolynomialMemory])
def test_memory_compiles_and_exports(kind):
    memory = kind(torch.randn(6, 4), **({"beta": 2.0} if kind is HopfieldMemory else {}))
    queries = torch.randn(3, 4)
    expected = memory(queries, steps=3)
    torch._dynamo.reset()
    compiled = torch.compile(memory, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(queries, steps=3), expected)
    exported = torch.export.export(memory, (queries,), {"steps": 3}).module()
    torch.testing.assert_close(exported(queries, steps=3), expected)


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_copies_are_equal_and_independent(kind, name):
    layer = build(kind, name)
    x = torch.randn(2, 5, 8)
    expected = layer(x).detach()
    fresh = kind(8, num_heads=2, **OPTIONS[name], **({} if kind is SparseHopfield else {"quantity": 3}))
    fresh.load_state_dict(layer.state_dict())
    pickled = io.BytesIO()
    torch.save(layer, pickled)
    pickled.seek(0)
    copies = [fresh, copy.deepcopy(layer), torch.load(pickled, weights_only=False)]
    for twin in copies:
        assert torch.equal(twin(x), expected)
    scramble(copies[1])
    assert not torch.equal(copies[1](x), expected)
    assert torch.equal(layer(x), expected)


def test_gradient_checkpointing():
    layer = build(SparseHopfield, "learned")
    x = torch.randn(2, 5, 8, requires_grad=True)
    layer(x).square().sum().backward()
    expected = [x.grad.clone(), *(p.grad.clone() for p in layer.parameters())]
    layer.zero_grad()
    x.grad = None
    checkpoint(layer, x, use_reentrant=False).square().sum().backward()
    for gradient, want in zip([x.grad, *(p.grad for p in layer.parameters())], expected, strict=True):
        torch.testing.assert_close(gradient, want)


def test_all_parameters_get_gradients():
    for kind in KINDS:
        layer = build(kind, "learned")
        layer(torch.randn(2, 5, 8)).square().sum().backward()
        assert all(parameter.grad is not None for parameter in layer.parameters())


def test_on_the_meta_device():
    with torch.device("meta"):
        layer = SparseHopfield(8, num_heads=2, learn_beta=True, association_activation="relu")
    assert all(parameter.is_meta for parameter in layer.parameters())
    layer = layer.to_empty(device="cpu")
    layer.reset_parameters()
    assert torch.isfinite(layer(torch.randn(2, 5, 8))).all()
