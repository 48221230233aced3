# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`SparseHopfieldLayer` is `SparseHopfield` with learned stored patterns."""

import pytest
import torch

from hf_sparse_hopfield import SparseHopfieldLayer

from .formula import hopfield_formula, scramble, softmax, sparsemax


@pytest.mark.parametrize(("alpha", "normalizer"), [(1.0, softmax), (2.0, sparsemax)])
@pytest.mark.parametrize("separated", [False, True])
def test_equals_formula(alpha, normalizer, separated):
    layer = SparseHopfieldLayer(8, num_heads=2, quantity=5, alpha=alpha, lookup_weights_as_separated=separated)
    layer = layer.double()
    scramble(layer)
    x = torch.randn(3, 4, 8, dtype=torch.float64)
    stored = layer.lookup_weights.detach().expand(3, 5, 8)
    targets = layer.target_weights.detach().expand(3, 5, 8) if separated else stored
    output, weights, values = hopfield_formula(
        {name.removeprefix("hopfield."): tensor for name, tensor in layer.state_dict().items()},
        stored,
        x,
        targets,
        normalizer=normalizer,
        num_heads=2,
        hidden_size=4,
    )
    torch.testing.assert_close(layer(x), output)
    torch.testing.assert_close(layer.get_association_matrix(x), weights)
    torch.testing.assert_close(layer.get_projected_pattern_matrix(x), values)


def test_shapes_and_names():
    layer = SparseHopfieldLayer(
        8, quantity=5, stored_pattern_size=6, pattern_projection_size=7, lookup_weights_as_separated=True
    )
    assert layer.lookup_weights.shape == (1, 5, 6)
    assert layer.target_weights.shape == (1, 5, 7)
    assert layer(torch.randn(3, 4, 8)).shape == (3, 4, 8)
    second = SparseHopfieldLayer(8, quantity=5, batch_first=False)
    assert second.lookup_weights.shape == (5, 1, 8)
    assert second(torch.randn(4, 3, 8)).shape == (4, 3, 8)
    assert "target_weights" not in second.state_dict()
    static = SparseHopfieldLayer(
        8,
        hidden_size=3,
        stored_pattern_as_static=True,
        normalize_stored_pattern=False,
        lookup_weights_as_separated=True,
    )
    assert static.lookup_weights.shape == (1, 1, 3)
    assert static.target_weights.shape == (1, 1, 8)


def test_what_is_trainable():
    layer = SparseHopfieldLayer(8, quantity=5, lookup_weights_as_separated=True, lookup_targets_as_trainable=False)
    scramble(layer)
    layer(torch.randn(3, 4, 8)).square().sum().backward()
    assert layer.lookup_weights.grad.abs().sum() > 0
    assert not layer.target_weights.requires_grad
    assert not SparseHopfieldLayer(8, trainable=False).lookup_weights.requires_grad


def test_masking_learned_patterns():
    layer = SparseHopfieldLayer(8, num_heads=2, quantity=5)
    x = torch.randn(3, 4, 8)
    unused = torch.tensor([[False, True, False, False, True]])
    weights = layer.get_association_matrix(x, unused)
    assert (weights[..., unused[0]] == 0).all()
    torch.testing.assert_close(layer(x, unused), layer(x, unused.expand(3, 5)))


def test_static_lookup_is_a_memory():
    """With identity projections the layer retrieves its patterns, here exactly."""
    layer = SparseHopfieldLayer(
        4,
        quantity=4,
        scaling=3.0,
        stored_pattern_as_static=True,
        state_pattern_as_static=True,
        pattern_projection_as_static=True,
        disable_out_projection=True,
        normalize_stored_pattern=False,
        normalize_state_pattern=False,
        normalize_pattern_projection=False,
    )
    with torch.no_grad():
        layer.lookup_weights.copy_(torch.eye(4))
    x = torch.eye(4)[None] + 0.1
    assert torch.equal(layer(x)[0], torch.eye(4))


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="lookup_weights_as_separated"):
        SparseHopfieldLayer(8, lookup_targets_as_trainable=False)
    with pytest.raises(ValueError, match="lookup_weights_as_separated"):
        SparseHopfieldLayer(8, stored_pattern_size=6)
    with pytest.raises(ValueError, match="quantity"):
        SparseHopfieldLayer(8, quantity=None)
    layer = SparseHopfieldLayer(8)
    with pytest.raises(TypeError, match="one tensor"):
        layer((torch.randn(2, 3, 8),))
    with pytest.raises(ValueError, match="state_pattern must have width 8"):
        layer(torch.randn(2, 3, 7))
