# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import pytest
import torch

from hf_sparse_hopfield.sample_inputs import random_batches, random_inputs

from ..tiny_families import tiny_family
from ..tiny_models import SPECIFICATIONS, tiny_model


@pytest.mark.parametrize("name", SPECIFICATIONS)
def test_random_inputs_are_taken(name):
    model = tiny_model(name)
    first, second = random_batches(model, 2, batch_size=3, length=7, seed=5)
    assert first.keys() == second.keys() and all(value.shape[0] == 3 for value in first.values())
    assert not all(torch.equal(first[key], second[key]) for key in first)
    again = random_inputs(model, batch_size=3, length=7, seed=6)
    assert all(torch.equal(again[key], value) for key, value in second.items())


def test_random_inputs_reach_all_parts():
    inputs = random_inputs(tiny_model("llava"))
    assert set(inputs) == {"input_ids", "pixel_values"} and (inputs["input_ids"] == 98).sum() == 2 * 4
    assert not (random_inputs(tiny_model("llama"), length=60)["input_ids"] <= 2).any()  # no special tokens
    assert set(random_inputs(tiny_family("clip"))) == {"input_ids", "pixel_values"}
    video = random_inputs(tiny_family("videomae"))["pixel_values"]
    assert video.ndim == 5


def test_a_model_without_random_inputs_is_told():
    with pytest.raises(ValueError, match="could not make random inputs that BrosModel takes.*'input_ids'.*bbox"):
        random_inputs(tiny_family("bros"))


def test_a_decoder_has_a_limit_of_its_own():
    model = tiny_model("whisper")
    assert not hasattr(type(model.config)(), "max_position_embeddings"), "it is called max_target_positions"
    inputs = random_inputs(model, length=512)
    assert inputs["decoder_input_ids"].shape[1] < model.config.max_target_positions
