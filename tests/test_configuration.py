# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import copy
import dataclasses
import json
import pickle

import pytest

from hf_sparse_hopfield.configuration import SparseHopfieldConfig, layer_index, layer_matches


FULL = {
    "alpha": 1.5,
    "beta": [1.0, 2.0],
    "steps": 3,
    "tolerance": 1e-3,
    "layers": [0, "decoder"],
    "overrides": {"0": {"beta": 2.0}, "decoder.layers.1": {"alpha": [1.0, 2.0], "steps": 1}},
    "learn_alpha": True,
    "learn_beta": True,
    "backend": "reference",
}


def test_defaults():
    config = SparseHopfieldConfig()
    assert (config.alpha, config.beta, config.steps, config.tolerance, config.backend) == (2.0, 1.0, 1, 0.0, "auto")
    assert config.layers is None and config.overrides == {} and not config.learn_alpha and not config.learn_beta
    assert config.for_layer("anything") == {"alpha": 2.0, "beta": 1.0, "steps": 1, "tolerance": 0.0, "backend": "auto"}
    assert repr(config) == "SparseHopfieldConfig()"


def test_every_field_has_help():
    assert all(field.metadata.get("help") for field in dataclasses.fields(SparseHopfieldConfig))


def test_round_trips():
    config = SparseHopfieldConfig.from_dict(FULL)
    assert config.to_dict() == FULL == config
    assert SparseHopfieldConfig.from_dict(json.loads(config.to_json_string())) == config
    assert SparseHopfieldConfig.from_dict(config) is config
    for other in (copy.deepcopy(config), copy.copy(config), pickle.loads(pickle.dumps(config))):
        assert isinstance(other, SparseHopfieldConfig) and other == config and other.overrides == config.overrides
    assert eval(repr(config)) == config
    assert hash(config) == hash(SparseHopfieldConfig.from_dict(FULL))


def test_lives_in_a_transformers_config(tmp_path):
    from transformers import AutoConfig, BertConfig

    config = BertConfig(sparse_hopfield=SparseHopfieldConfig.from_dict(FULL))
    assert "sparse_hopfield" in repr(config)
    config.save_pretrained(tmp_path)
    assert AutoConfig.from_pretrained(tmp_path).sparse_hopfield == config.sparse_hopfield == FULL


def test_layers_and_overrides():
    config = SparseHopfieldConfig(
        layers=[1, "decoder", "head?"], overrides={1: {"beta": 3.0}, "*cross_attn": {"beta": 4.0, "alpha": 1.5}}
    )
    assert config.for_layer("encoder.layers.0.self_attn") is None
    assert config.for_layer("encoder.layers.1.self_attn")["beta"] == 3.0
    assert config.for_layer("model.decoder.layers.0.self_attn")["beta"] == 1.0
    assert config.for_layer("model.decoder.layers.1.cross_attn")["beta"] == 4.0, "the later override wins"
    assert config.for_layer("model.head2.attention") is not None
    assert config.layer_names == [1, "decoder", "head?", 1, "*cross_attn"]


@pytest.mark.parametrize(
    "layer, name, matches",
    [
        ("decoder", "model.decoder.layers.0", True),
        ("decoder", "model.decoders.layers.0", False),
        ("decoder.layers.1", "model.decoder.layers.10.attn", False),
        ("layers.1*", "model.decoder.layers.10.attn", True),
        ("model", "model", True),
        (10, "model.decoder.layers.10.attn", True),
        (1, "model.decoder.layers.10.attn", False),
        (0, "pooler.attention", False),
    ],
)
def test_layer_matches(layer, name, matches):
    assert layer_matches(layer, name) is matches


def test_layer_index():
    assert layer_index("encoder.layers.2.blocks.1.attention") == 2
    assert layer_index("pooler.attention") is None


@pytest.mark.parametrize(
    "settings, error, message",
    [
        ({"alfa": 1.0}, ValueError, r"unknown keys \['alfa'\]"),
        ({"overrides": {0: {"layers": [1]}}}, ValueError, r"overrides\[0\] has the unknown keys \['layers'\]"),
        ({"overrides": {0: 1.5}}, TypeError, r"overrides\[0\] must be a dict"),
        ({"overrides": [1]}, TypeError, "overrides must be a dict"),
        ({"overrides": {0: {"alpha": 3}}}, ValueError, r"overrides\[0\].alpha must be in \[1, 2\], got 3"),
        ({"alpha": 0.5}, ValueError, r"alpha must be in \[1, 2\], got 0.5"),
        ({"alpha": [1.0, 2.5]}, ValueError, "alpha must be in"),
        ({"alpha": []}, TypeError, "alpha must be a number"),
        ({"alpha": "2"}, TypeError, "alpha must be a number"),
        ({"beta": 0}, ValueError, "beta must be positive, got 0"),
        ({"beta": float("nan")}, ValueError, "beta must be positive"),
        ({"beta": True}, TypeError, "beta must be a number"),
        ({"steps": 0}, ValueError, "steps must be at least 1"),
        ({"steps": 1.0}, TypeError, "steps must be an integer"),
        ({"tolerance": -1.0}, ValueError, "tolerance must be at least 0"),
        ({"tolerance": [1.0]}, TypeError, "tolerance must be one number"),
        ({"layers": []}, ValueError, "layers is empty"),
        ({"layers": "decoder"}, TypeError, "layers must be a list"),
        ({"layers": [-1]}, ValueError, "negative"),
        ({"layers": [1.5]}, TypeError, "index or a name pattern"),
        ({"learn_beta": 1}, TypeError, "learn_beta must be True or False"),
        ({"backend": None}, TypeError, "backend must be the name"),
    ],
)
def test_bad_settings(settings, error, message):
    with pytest.raises(error, match=message):
        SparseHopfieldConfig.from_dict(settings)


def test_not_a_dict():
    with pytest.raises(TypeError, match="SparseHopfieldConfig or a dict, got 1.5"):
        SparseHopfieldConfig.from_dict(1.5)


def test_cannot_be_changed():
    config = SparseHopfieldConfig()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.alpha = 1.5
    with pytest.raises(TypeError, match="make a new one"):
        config["alpha"] = 1.5
    with pytest.raises(TypeError, match="make a new one"):
        del config["alpha"]


def test_numbers_from_arrays():
    import torch

    assert SparseHopfieldConfig(beta=torch.tensor([1.0, 2.0])).beta == [1.0, 2.0]
    assert SparseHopfieldConfig(alpha=torch.tensor(1.5)).alpha == 1.5
