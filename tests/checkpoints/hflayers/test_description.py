# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import pytest
import torch

from hf_sparse_hopfield import SparseHopfield, SparseHopfieldPooling
from hf_sparse_hopfield.checkpoints.hflayers.description import describe_layers


def test_names_and_shapes_tell_classes_and_sizes():
    state = {f"a.{name}": value for name, value in SparseHopfield(12, 5, 9, 7, num_heads=2).state_dict().items()}
    state |= {f"b.{name}": value for name, value in SparseHopfieldPooling(6, quantity=3).state_dict().items()}
    layers = describe_layers({**state, "classifier.weight": torch.ones(2, 3)}, 2, 1.5, {"scaling": 0.5})
    assert {prefix: entry["class"] for prefix, entry in layers.items()} == {
        "a.": "SparseHopfield",
        "b.": "SparseHopfieldPooling",
    }
    arguments = layers["a."]["arguments"]
    sizes = {"input_size": 12, "hidden_size": 5, "output_size": 9, "pattern_size": 7}
    given = {"num_heads": 2, "alpha": 1.5, "scaling": 0.5}
    assert {name: arguments[name] for name in (*sizes, *given)} == sizes | given
    assert layers["b."]["arguments"]["quantity"] == 3


def test_missing_weights_are_told():
    state = SparseHopfield(12).state_dict()
    del state["association_core.in_proj_weight"]
    with pytest.raises(ValueError, match="neither in_proj_weight nor q_proj_weight: give its sizes in --options"):
        describe_layers(state, 1, 1.0, {})
