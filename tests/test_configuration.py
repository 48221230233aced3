# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import copy
import dataclasses
import enum
import inspect
import json
import multiprocessing
import operator
import pickle

import numpy as np
import pytest
from transformers import AutoConfig, BertConfig

from hf_sparse_hopfield.configuration import FIELDS, SparseHopfieldConfig, layer_index, layer_matches


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
    "length_power": [-0.1, 0.0],
    "learn_length_power": True,
}


def test_defaults():
    config = SparseHopfieldConfig()
    assert (config.alpha, config.beta, config.steps, config.tolerance, config.backend) == (2.0, 1.0, 1, 0.0, "auto")
    assert config.layers is None and config.overrides == {} and not config.learn_alpha and not config.learn_beta
    plain = {"alpha": 2.0, "beta": 1.0, "length_power": 0.0, "steps": 1, "tolerance": 0.0, "backend": "auto"}
    assert config.for_layer("anything") == plain
    assert repr(config) == "SparseHopfieldConfig()"


def test_every_field_is_an_argument_a_documented_one_and_an_attribute():
    config = SparseHopfieldConfig()
    assert tuple(inspect.signature(SparseHopfieldConfig).parameters) == FIELDS == tuple(config)
    described = inspect.getdoc(SparseHopfieldConfig).partition("Args:")[2].partition("Example:")[0]
    for name in FIELDS:
        assert f"\n    {name} (`" in described or f"\n    {name} (list" in described, name
        assert getattr(config, name) == config[name]
        assert getattr(SparseHopfieldConfig, name).__doc__


def test_positional_arguments():
    config = SparseHopfieldConfig(1.5, 2.0, 3, 0.1, [1], {1: {"beta": 1.0}}, True, True, "reference", -0.1, True)
    layers = [1.5, 2.0, 3, 0.1, [1], {"1": {"beta": 1.0}}]
    assert list(config.values()) == [*layers, True, True, "reference", -0.1, True]


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
    settings = SparseHopfieldConfig.from_dict(FULL)
    config = BertConfig(sparse_hopfield=settings)
    assert "sparse_hopfield" in repr(config) and config.to_diff_dict()["sparse_hopfield"] == FULL
    assert json.loads(json.dumps(config.to_dict(), sort_keys=True))["sparse_hopfield"] == FULL
    assert (
        config == BertConfig(sparse_hopfield=FULL) and config.to_dict() == BertConfig(sparse_hopfield=FULL).to_dict()
    )
    for other in (copy.deepcopy(config), pickle.loads(pickle.dumps(config))):
        assert other.to_dict() == config.to_dict() and isinstance(other.sparse_hopfield, SparseHopfieldConfig)
    config.save_pretrained(tmp_path)
    assert AutoConfig.from_pretrained(tmp_path).sparse_hopfield == config.sparse_hopfield == FULL
    assert settings == FULL


def test_goes_to_another_process():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_describe, (SparseHopfieldConfig.from_dict(FULL),)) == ("SparseHopfieldConfig", FULL)


def _describe(config):
    return type(config).__name__, config.to_dict()


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


CHANGES = {
    "attribute": lambda config: setattr(config, "alpha", 1.5),
    "new attribute": lambda config: setattr(config, "gamma", 1.5),
    "deleted attribute": lambda config: delattr(config, "alpha"),
    "attribute of the base class": lambda config: object.__setattr__(config, "alpha", 1.5),
    "new attribute of the base class": lambda config: object.__setattr__(config, "gamma", 1.5),
    "instance dict": lambda config: vars(config).update(alpha=1.5),
    "item": lambda config: config.__setitem__("alpha", 1.5),
    "deleted item": lambda config: config.__delitem__("alpha"),
    "update": lambda config: config.update(alpha=1.5),
    "update with nothing": lambda config: config.update(),
    "pop": lambda config: config.pop("alpha"),
    "pop with default": lambda config: config.pop("alpha", None),
    "pop of nothing": lambda config: config.pop("gamma"),
    "popitem": lambda config: config.popitem(),
    "clear": lambda config: config.clear(),
    "setdefault": lambda config: config.setdefault("gamma", 1.5),
    "|=": lambda config: operator.ior(config, {"alpha": 1.5}),
    "unpickling": lambda config: config.__setstate__({"alpha": 1.5}),
    "nested item": lambda config: config["overrides"]["0"].__setitem__("beta", 3.0),
    "nested new item": lambda config: config["overrides"].update({"1": {"beta": 3.0}}),
    "nested list": lambda config: config["overrides"]["decoder.layers.1"]["alpha"].append(1.5),
    "overrides": lambda config: config.overrides.__setitem__(1, {"beta": 3.0}),
    "an override": lambda config: config.overrides[0].__setitem__("beta", 3.0),
    "a list in an override": lambda config: config.overrides["decoder.layers.1"]["alpha"].append(1.5),
    "append to layers": lambda config: config.layers.append(1),
    "sort layers": lambda config: config.layers.reverse(),
    "item of layers": lambda config: config["layers"].__setitem__(0, 5),
    "append to a list per head": lambda config: config.beta.append(1.5),
    "+= on a list per head": lambda config: operator.iadd(config.beta, [1.5]),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_cannot_be_changed(change):
    config = SparseHopfieldConfig.from_dict(FULL)
    with pytest.raises((TypeError, AttributeError)):
        change(config)
    assert config == FULL and config.overrides == SparseHopfieldConfig.from_dict(FULL).overrides
    assert config.for_layer("model.decoder.layers.0") == SparseHopfieldConfig.from_dict(FULL).for_layer("decoder.0")


def test_the_error_says_how_to_make_a_new_one():
    config = SparseHopfieldConfig.from_dict(FULL)
    with pytest.raises(dataclasses.FrozenInstanceError, match="make a new one"):
        config.alpha = 1.5
    with pytest.raises(TypeError, match="SparseHopfieldConfig cannot be changed; make a new one.*from_dict"):
        config["alpha"] = 1.5
    with pytest.raises(TypeError, match="make a new one"):
        del config["alpha"]
    with pytest.raises(TypeError, match="make a new one"):
        config.beta[0] = 1.5


def test_a_second_init_changes_nothing():
    config = SparseHopfieldConfig.from_dict(FULL)
    config.__init__(alpha=1.0)
    config["overrides"].__init__({"1": {"beta": 3.0}})
    config.layers.__init__([7])
    assert config == FULL


def test_popping_an_absent_key_is_no_change():
    assert SparseHopfieldConfig().pop("dtype", None) is None


def test_what_is_derived_can_be_changed():
    config = SparseHopfieldConfig.from_dict(FULL)
    joined = config | {"alpha": 1.0}
    assert type(joined) is dict and joined["alpha"] == 1.0 and type({} | config) is dict
    plain = config.to_dict()
    plain["overrides"]["0"]["beta"] = 3.0
    plain["layers"].append(5)
    plain["beta"].append(1.0)
    settings = config.for_layer("decoder.layers.1")
    assert type(settings) is dict and type(settings["alpha"]) is list
    settings["alpha"].append(1.0)
    config.layer_names.append(5)
    assert config == FULL


def test_the_arguments_are_copied():
    layers, overrides = [0], {0: {"beta": [1.0, 2.0]}}
    config = SparseHopfieldConfig(layers=layers, overrides=overrides)
    layers.append(1)
    overrides[0]["beta"].append(3.0)
    assert (config.layers, config.overrides) == ([0], {0: {"beta": [1.0, 2.0]}})


def test_the_content_is_plain():
    """Whatever the arguments are, JSON values come out, which sort and compare in every process alike."""

    class Backend(str, enum.Enum):
        REFERENCE = "reference"

    config = SparseHopfieldConfig(np.float64(1.5), (1, 2), layers=(0, "a"), backend=Backend.REFERENCE)
    assert config.to_dict() == {**SparseHopfieldConfig(), "alpha": 1.5, "beta": [1.0, 2.0], "layers": [0, "a"]} | {
        "backend": "reference"
    }
    assert [type(config[name]) for name in ("alpha", "backend")] == [float, str]


def test_numbers_from_arrays():
    import torch

    assert SparseHopfieldConfig(beta=torch.tensor([1.0, 2.0])).beta == [1.0, 2.0]
    assert SparseHopfieldConfig(alpha=torch.tensor(1.5)).alpha == 1.5


def test_replace_makes_a_new_configuration():
    config = SparseHopfieldConfig(alpha=1.5, overrides={0: {"beta": 2.0}})
    assert config.replace(alpha=2.0) == SparseHopfieldConfig(overrides={0: {"beta": 2.0}})
    assert config.alpha == 1.5
    with pytest.raises(ValueError, match="unknown keys"):
        config.replace(gamma=1.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"alpha": [1.5] * 100_000}, "alpha has 100000 entries"),
        ({"layers": list(range(100_000))}, "layers has 100000 entries"),
        ({"layers": ["x" * 2000]}, "layers: a layer name has 2000 entries or characters"),
        ({"overrides": {i: {} for i in range(20_000)}}, "overrides has 20000 entries"),
        ({"overrides": {"9" * 5000: {}}}, "overrides: a layer name has 5000"),
        ({"steps": 10**9}, "steps must be at most 10000, got 1000000000"),
        ({"overrides": {"0": {"steps": 10**400}}}, r"overrides\[0\].steps must be at most 10000, got 10+\.\.\.0+:"),
        ({"alpha": 10**400}, "alpha must be in "),
        ({"backend": "x" * 2000}, "backend has 2000 entries or characters"),
    ],
)
def test_what_no_model_needs_is_refused_briefly(changes, message):
    with pytest.raises(ValueError, match=message) as error:
        SparseHopfieldConfig(**changes)
    assert len(str(error.value)) < 300
