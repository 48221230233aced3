# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import json

import pytest
import torch

from hf_sparse_hopfield import SparseHopfieldMultipleInstanceConfig

from .test_modeling_multiple_instance import make


@pytest.mark.parametrize(
    "settings, message",
    [
        (
            {"aggregation": "mean"},
            "aggregation must be one of 'hopfield', 'pooling', 'attention', 'gated_attention', got 'mean'",
        ),
        ({"aggregation": "attention", "update_steps": 2}, "update_steps of the Hopfield layers"),
        ({"aggregation": "hopfield", "quantity": 3}, "quantity=3 needs aggregation='pooling'"),
        ({"embedding_layers": -1}, "embedding_layers must be an integer of at least 0, got -1"),
        ({"initializer_range": 0.0}, "initializer_range must be a positive, finite number or None, got 0.0"),
        ({"aggregation": "attention", "update_eps": 1e-3}, "update_eps of the Hopfield layers cannot be set"),
        ({"aggregation": "attention", "update_steps": None}, "update_steps of the Hopfield layers"),
        ({"aggregation": "attention", "alpha": 3}, r"alpha must be in \[1, 2\], got 3"),
        ({"aggregation": "attention", "alpha": [1.0] * 8}, "alpha must be one number with aggregation='attention'"),
        ({"aggregation": "gated_attention", "beta": [1.0] * 8}, "beta must be one number"),
        ({"aggregation": "attention", "bag_dropout": 1.5}, r"bag_dropout must be a probability in \[0, 1\), got 1.5"),
        ({"bag_dropout": True}, "bag_dropout must be a probability"),
        ({"alpha": [1.0, 2.5]}, r"alpha must be in \[1, 2\]"),
        ({"beta": 0.0}, "beta must be positive, got 0.0"),
        ({"beta": float("nan")}, "beta must be positive, got nan"),
        ({"input_size": 0}, "input_size must be an integer of at least 1, got 0"),
        ({"embedding_size": 6.0}, "embedding_size must be an integer of at least 1, got 6.0"),
        ({"num_heads": True}, "num_heads must be an integer of at least 1, got True"),
        ({"head_size": None}, "head_size must be an integer of at least 1, got None"),
        ({"quantity": 0}, "quantity must be an integer of at least 1, got 0"),
        ({"scaling": -1.0}, "scaling must be a positive, finite number, got -1.0"),
        ({"scaling": [1.0, 0.0]}, "scaling must be a positive, finite number, got 0.0"),
        ({"scaling": [1.0, 2.0]}, "scaling must be one number or one for each of num_heads=8"),
        ({"update_steps": 1.5}, "update_steps must be an integer, or None for until convergence, got 1.5"),
        ({"update_eps": -1e-4}, "update_eps must be a finite number of at least 0, got -0.0001"),
    ],
)
def test_bad_configurations(settings, message):
    with pytest.raises(ValueError, match=message):
        SparseHopfieldMultipleInstanceConfig(**settings)


@pytest.mark.parametrize("settings", [{"alpha": "2"}, {"learn_beta": 1}, {"normalize": "yes"}])
def test_bad_types_in_configurations(settings):
    with pytest.raises(TypeError, match=f"{next(iter(settings))} must be"):
        SparseHopfieldMultipleInstanceConfig(**settings)


def test_good_configurations():
    """The configuration accepts what the layers accept, and keeps it as plain values that JSON can hold."""
    settings = {"alpha": (1, 2), "beta": torch.tensor([0.5, 2.0]), "scaling": [0.5, 1.0], "update_steps": None}
    model = make("hopfield", num_heads=2, **settings)
    assert (model.config.alpha, model.config.beta) == ([1.0, 2.0], [0.5, 2.0]) and type(model.config.alpha) is list
    assert torch.isfinite(model(torch.randn(2, 4, 6)).logits).all()
    assert json.loads(model.config.to_json_string())["alpha"] == [1.0, 2.0]
    assert type(make("attention", alpha=2, update_eps=0.0).config.alpha) is float
