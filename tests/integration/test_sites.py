# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import pytest

from hf_sparse_hopfield import SparseHopfieldConfig, to_dense, to_sparse_hopfield
from hf_sparse_hopfield.integration.sites import (
    attention_sites,
    configs_of,
    is_converted_config,
    number_of_heads,
    owner_of_settings,
    settings_of,
    shortened,
    with_parts,
)

from ..tiny_models import tiny_model


@pytest.mark.parametrize(
    ("name", "count", "route"), [("bert", 2, "registry"), ("mpnet", 2, "patched"), ("t5", 6, "registry")]
)
def test_every_attention_module_is_found(name, count, route):
    sites = attention_sites(tiny_model(name))
    assert len(sites) == count and {site.kind.route for site in sites} == {route}
    assert {number_of_heads(site) for site in sites} == {4}
    assert not any(site.is_sparse for site in sites)


def test_the_nearest_configuration_with_settings_decides():
    model = tiny_model("llava")
    model.config.sparse_hopfield = {"alpha": 1.5}
    model.config.text_config.sparse_hopfield = {"alpha": 1.25}
    alphas = {site.name.split(".")[1]: site.settings.alpha for site in attention_sites(model)}
    assert alphas == {"vision_tower": 1.5, "language_model": 1.25}
    assert settings_of([model.config.vision_config]) == SparseHopfieldConfig()
    assert owner_of_settings([model.config.vision_config]) is None
    assert owner_of_settings([model.config.vision_config, model.config]) is model.config


def test_configurations_of_parts_are_found():
    config = tiny_model("llava").config
    found = configs_of(tiny_model("llava"))
    assert {type(each) for each in found} >= {type(config), type(config.text_config), type(config.vision_config)}


def test_configurations_with_their_parts():
    config = tiny_model("llava").config
    parts = [config, config.text_config, config.vision_config]
    assert sorted(map(id, with_parts([config, None, config.text_config, 1]))) == sorted(map(id, parts))


def test_converted_configurations_are_known_also_as_those_of_the_family(tmp_path):
    model = tiny_model("bert", "sparse_hopfield", sparse_hopfield={"alpha": 1.5})
    assert not is_converted_config(model.config)
    to_sparse_hopfield(model)
    assert is_converted_config(model.config)
    model.save_pretrained(tmp_path)
    assert is_converted_config(to_dense(model).config.from_pretrained(tmp_path))
    assert not is_converted_config(model.config)


def test_many_names_are_shortened():
    assert shortened(["a", "b"]) == "a, b"
    assert shortened(list("abcdefgh")) == "a, b, c, ..., g, h"
