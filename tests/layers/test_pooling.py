# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`SparseHopfieldPooling` is `SparseHopfield` with learned states."""

import pytest
import torch

from hf_sparse_hopfield import SparseHopfieldPooling

from .formula import hopfield_formula, scramble, softmax, sparsemax


def inner(state_dict):
    return {name.removeprefix("hopfield."): tensor for name, tensor in state_dict.items()}


@pytest.mark.parametrize(("alpha", "normalizer"), [(1.0, softmax), (2.0, sparsemax)])
def test_equals_formula(alpha, normalizer):
    options = {"alpha": alpha, "update_steps_max": 1, "update_steps_eps": 0.0}
    pool = SparseHopfieldPooling(8, num_heads=2, quantity=3, output_size=5, **options).double()
    scramble(pool)
    bag = torch.randn(4, 6, 8, dtype=torch.float64)
    padding = torch.rand(4, 6) < 0.4
    output, weights, values = hopfield_formula(
        inner(pool.state_dict()),
        bag,
        pool.pooling_weights.detach().expand(4, 3, 8),
        bag,
        padding_mask=padding,
        normalizer=normalizer,
        num_heads=2,
        hidden_size=4,
        update_steps_max=1,
    )
    torch.testing.assert_close(pool(bag, padding), output.flatten(1))
    torch.testing.assert_close(pool.get_association_matrix(bag, padding), weights)
    torch.testing.assert_close(pool.get_projected_pattern_matrix(bag, padding), values)


def test_shapes_and_names():
    pool = SparseHopfieldPooling(
        input_size=8, num_heads=2, quantity=3, stored_pattern_size=5, pattern_projection_size=6
    )
    assert pool.pooling_weights.shape == (1, 3, 8)
    assert "hopfield.association_core.q_proj_weight" in pool.state_dict()
    assert pool((torch.randn(2, 7, 5), torch.randn(2, 7, 6))).shape == (2, 24)
    second = SparseHopfieldPooling(input_size=8, quantity=3, batch_first=False)
    assert second.pooling_weights.shape == (3, 1, 8)


def test_batch_second_keeps_samples_apart():
    """hflayers flattens (quantity, batch, output) from dimension 1, which joins the samples."""
    first = SparseHopfieldPooling(8, quantity=3).double()
    second = SparseHopfieldPooling(8, quantity=3, batch_first=False).double()
    scramble(first)
    weights = first.state_dict()
    weights["pooling_weights"] = weights["pooling_weights"].transpose(0, 1)
    second.load_state_dict(weights)
    bag = torch.randn(4, 6, 8, dtype=torch.float64)
    torch.testing.assert_close(second(bag.transpose(0, 1)), first(bag))


def test_static_states():
    static = {"state_pattern_as_static": True, "normalize_state_pattern": False}
    pool = SparseHopfieldPooling(8, hidden_size=3, num_heads=2, **static)
    assert pool.pooling_weights.shape == (1, 1, 3)
    assert pool(torch.randn(2, 5, 8)).shape == (2, 8)
    with pytest.raises(ValueError, match="state_pattern"):
        SparseHopfieldPooling(8, hidden_size=3, state_pattern_as_static=True)


def test_gradients_and_trainable():
    pool = SparseHopfieldPooling(8, quantity=2)
    scramble(pool)
    pool(torch.randn(3, 5, 8)).square().sum().backward()
    assert pool.pooling_weights.grad.abs().sum() > 0
    fixed = SparseHopfieldPooling(8, quantity=2, trainable=False)
    assert not fixed.pooling_weights.requires_grad
    assert "pooling_weights" in fixed.state_dict()


def test_permutation_invariance():
    pool = SparseHopfieldPooling(8, num_heads=2, alpha=1.5, update_steps_max=2).double()
    scramble(pool)
    bag = torch.randn(2, 9, 8, dtype=torch.float64)
    torch.testing.assert_close(pool(bag[:, torch.randperm(9)]), pool(bag))


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="quantity"):
        SparseHopfieldPooling(8, quantity=0)
    with pytest.raises(ValueError, match="input_size"):
        SparseHopfieldPooling(None)
    with pytest.raises(TypeError, match="no_such_option"):
        SparseHopfieldPooling(8, no_such_option=1)
    pool = SparseHopfieldPooling(8)
    with pytest.raises(TypeError, match="two tensors"):
        pool((torch.randn(2, 3, 8),) * 3)
    with pytest.raises(ValueError, match="stored_pattern must have width 8"):
        pool(torch.randn(2, 3, 7))
