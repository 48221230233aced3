# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Models compute and generate on a GPU what they do on a CPU."""

import copy

import pytest
import torch

from hf_sparse_hopfield import SparseHopfieldCache

from ..tiny_models import padded, tiny_inputs, tiny_model, tiny_output
from .comparing import assert_same, assert_same_module, moved


pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("exact")]
NAME = "sparse_hopfield"
LEARNED = {"alpha": 1.5, "learn_alpha": True, "learn_beta": True}
MODELS = ["llama", "bert", "t5", "whisper", "mistral", "gpt_oss"]


def generate(model, inputs, **options):
    options = {"max_new_tokens": 8, "min_new_tokens": 8, "do_sample": False} | options
    return model.generate(**inputs, **options, return_dict_in_generate=True)


@pytest.mark.parametrize("name", MODELS)
def test_forward_and_backward(name, device):
    model = tiny_model(name, NAME, sparse_hopfield=LEARNED)
    inputs = tiny_inputs(name, length=40)
    assert_same_module(model, lambda model, place: tiny_output(model, moved(inputs, place)), device, 5e-3)


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("name", ["llama", "bert", "t5"])
def test_padding(name, left, device):
    model = tiny_model(name, NAME, sparse_hopfield=LEARNED)
    inputs = padded(name, left)
    assert_same_module(model, lambda model, place: tiny_output(model, moved(inputs, place)), device, 5e-3)


@pytest.mark.parametrize("options", [{}, {"num_beams": 3}], ids=["greedy", "beams"])
@pytest.mark.parametrize("name", ["llama", "mistral", "t5", "whisper"])
def test_generate_with_our_cache(name, options, device):
    model = tiny_model(name, NAME)
    inputs = tiny_inputs(name, length=5)
    inputs.pop("decoder_input_ids", None)
    expected = generate(model, inputs, **options)
    found = generate(model.to(device), moved(inputs, device), **options)
    assert torch.equal(found.sequences.cpu(), expected.sequences)
    if name == "whisper":  # its generation returns another cache than the one that it used
        return
    cache = getattr(found.past_key_values, "self_attention_cache", found.past_key_values)
    assert isinstance(cache, SparseHopfieldCache)
    assert cache.layers[0].keys.device.type == device


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_long_prompt_is_decoded_with_a_screen(dtype, device):
    model = tiny_model("llama", NAME, max_position_embeddings=2048)
    inputs = tiny_inputs("llama", length=700)
    expected = generate(model, inputs, output_logits=True)
    model = model.to(device, dtype)
    found = generate(model, moved(inputs, device), output_logits=True)
    assert found.past_key_values.screen_nbytes > 0
    if dtype == torch.float32:
        assert torch.equal(found.sequences.cpu(), expected.sequences)
        for a, b in zip(found.logits, expected.logits, strict=True):
            assert_same(a, b, "logits", 5e-3)
    unscreened = SparseHopfieldCache(config=model.config, screen=False)
    other = generate(model, moved(inputs, device), past_key_values=unscreened)
    assert unscreened.screen_nbytes == 0
    if dtype == torch.float32:
        assert torch.equal(other.sequences, found.sequences)


def test_half_precision(device):
    model = tiny_model("llama", NAME)
    inputs = tiny_inputs("llama", length=40)
    half = copy.deepcopy(model).to(device, torch.bfloat16)
    logits = tiny_output(half, moved(inputs, device))
    assert logits.dtype == torch.bfloat16 and logits.isfinite().all()
    dense = copy.deepcopy(half)
    dense.set_attn_implementation("sdpa")
    assert not torch.equal(tiny_output(dense, moved(inputs, device)), logits)


def test_autocast(device):
    model = tiny_model("llama", NAME, sparse_hopfield=LEARNED).to(device)
    inputs = moved(tiny_inputs("llama", length=40), device)
    with torch.autocast(device, torch.bfloat16):
        logits = tiny_output(model, inputs)
    logits.float().square().mean().backward()
    gradients = [p.grad for name, p in model.named_parameters() if "sparse_hopfield" in name]
    assert gradients and all(gradient.isfinite().all() and gradient.any() for gradient in gradients)
