# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import numpy as np
import pytest
import torch
from PIL import Image
from transformers import ViTImageProcessorPil

from hf_sparse_hopfield import to_sparse_hopfield
from hf_sparse_hopfield.demo import make_tokenizer
from hf_sparse_hopfield.sample_inputs import given_inputs

from ..tiny_models import tiny_model


def test_a_text_and_a_picture(tmp_path):
    tokenizer = make_tokenizer()
    model = to_sparse_hopfield(tiny_model("llama", vocab_size=len(tokenizer)))
    inputs = given_inputs(model, tokenizer, prompt="the people of the nation")
    assert tokenizer.decode(inputs["input_ids"][0]) == "the people of the nation" and "token_type_ids" not in inputs
    Image.fromarray(np.zeros((20, 30, 3), dtype=np.uint8)).save(tmp_path / "black.png")
    processor = ViTImageProcessorPil(size={"height": 8, "width": 8})
    pixels = given_inputs(tiny_model("vit"), processor, image=tmp_path / "black.png")["pixel_values"]
    assert pixels.shape == (1, 3, 8, 8) and torch.equal(pixels, torch.full_like(pixels, -1.0))
    with pytest.raises(ValueError, match="image: the .* of .* makes no inputs of it"):
        given_inputs(model, tokenizer, image=tmp_path / "black.png")


def test_a_decoder_writes_its_text_itself():
    tokenizer = make_tokenizer()
    model = to_sparse_hopfield(tiny_model("t5", vocab_size=len(tokenizer)))
    inputs = given_inputs(model, tokenizer, prompt="the people")
    written = model.generate(input_ids=inputs["input_ids"], max_new_tokens=64, do_sample=False)
    assert torch.equal(inputs["decoder_input_ids"], written) and written.shape[1] > 1
