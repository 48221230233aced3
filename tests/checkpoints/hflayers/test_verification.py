# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import pytest
import torch

from hf_sparse_hopfield import SparseHopfield, SparseHopfieldPooling
from hf_sparse_hopfield.checkpoints.hflayers.description import describe_layers
from hf_sparse_hopfield.checkpoints.hflayers.verification import verify_layer

from ...layers.formula import scramble


def described(layer, num_heads=1, alpha=1.0, **options):
    (entry,) = describe_layers(layer.state_dict(), num_heads, alpha, options).values()
    return entry["arguments"]


def test_a_layer_that_is_not_what_its_arguments_say_fails():
    layer = SparseHopfield(12, num_heads=2, alpha=1.0)
    scramble(layer)
    assert verify_layer(layer, described(layer, 2)) < 1e-8
    with pytest.raises(RuntimeError, match="differ by up to .* Check num_heads=2"):
        verify_layer(layer, described(layer, 2, alpha=2.0))
    with pytest.raises(RuntimeError, match="verification failed"):
        verify_layer(layer, described(layer, 2, scaling=0.1))


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
def test_pooling_with_projections_of_another_width(alpha):
    layer = SparseHopfieldPooling(12, pattern_projection_size=5, alpha=alpha)
    scramble(layer)
    assert verify_layer(layer, described(layer, alpha=alpha)) < 1e-8


@pytest.mark.parametrize(
    "options", [{"add_zero_association": True}, {"beta": [1.0, 2.0]}, {"batch_first": False}, {"alpha": [1.0, 2.0]}]
)
def test_options_beyond_the_formula_are_reported(options):
    layer = SparseHopfield(12, num_heads=2, **{"alpha": 1.0, **options})
    assert "does not cover" in verify_layer(layer, described(layer, 2, **options))
    assert next(layer.parameters()).dtype is torch.float32
