# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import pytest

from hf_sparse_hopfield import SparseHopfieldCrossformerConfig


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"segment_length": 0}, "segment_length must be an integer of at least 1, got 0"),
        ({"hidden_size": 10, "num_attention_heads": 4}, "hidden_size=10 must be a multiple of num_attention_heads=4"),
        ({"dropout": 1.5}, "dropout must be a probability"),
        ({"attention": "linear"}, "attention must be one of"),
        ({"attention": "dense", "alpha": 2.0}, 'use attention="sparse" for another alpha'),
        ({"attention": "softmax", "learn_alpha": True}, 'use attention="sparse" for another alpha'),
        ({"alpha": 3.0}, "alpha must be in"),
        ({"center": "median"}, "center must be one of"),
    ],
)
def test_wrong_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        SparseHopfieldCrossformerConfig(**settings)


def test_segments_include_partial_ones():
    config = SparseHopfieldCrossformerConfig(context_length=25, prediction_length=7, segment_length=4)
    assert (config.num_context_segments, config.num_prediction_segments) == (7, 2)


def test_alpha_follows_the_attention():
    alphas = [SparseHopfieldCrossformerConfig(attention=name).alpha for name in ("sparse", "dense", "softmax")]
    assert alphas == [2.0, 1.0, 1.0]


def test_settings_are_plain_values():
    """They belong to this configuration, which can be changed like any of transformers."""
    config = SparseHopfieldCrossformerConfig(alpha=(1, 2, 1, 2))
    assert config.alpha == [1.0, 2.0, 1.0, 2.0] and type(config.alpha) is list
