# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, ViTImageProcessorPil

from hf_sparse_hopfield.diagnostics.explorer.streams import Streams

from ...tiny_models import tiny_inputs, tiny_model


def byte_level() -> PreTrainedTokenizerFast:
    vocabulary = {"<s>": 0, "Ġcat": 1, "s": 2, "Ċ": 3, "Ã": 4}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>")


def test_tokens_are_shown_as_they_are_read():
    inputs = {"input_ids": torch.tensor([[0, 1, 2, 3, 4]])}
    streams = Streams(tiny_model("llama"), inputs, byte_level())
    text, keys = streams.of_layer("model.layers.0.self_attn", 5, 5)
    assert text is keys and text.labels == ["<s>", " cat", "s", "\n", "Ã"] and text.special == [0]
    pieces = Tokenizer(models.WordPiece({"[UNK]": 0, "walk": 1, "##ing": 2}, unk_token="[UNK]"))
    streams = Streams(
        tiny_model("bert"),
        {"input_ids": torch.tensor([[1, 2, 1, 98]])},
        PreTrainedTokenizerFast(tokenizer_object=pieces),
    )
    assert streams.of_layer("bert.encoder.layer.0", 4, 4)[0].labels == [" walk", "ing", " walk", " 98"]
    assert Streams(tiny_model("llama"), inputs).text.labels == [" 0", " 1", " 2", " 3", " 4"]


@pytest.mark.parametrize(("name", "queries", "keys"), [
    ("model.encoder.layers.0.self_attn", "encoder text", "encoder text"),
    ("model.decoder.layers.0.self_attn", "decoder text", "decoder text"),
    ("model.decoder.layers.0.encoder_attn", "decoder text", "encoder text"),
])  # fmt: skip
def test_layers_of_an_encoder_decoder_read_the_right_text_when_both_are_equally_long(name, queries, keys):
    inputs = {"input_ids": torch.arange(3, 9)[None], "decoder_input_ids": torch.arange(4, 10)[None]}
    found = Streams(tiny_model("bart"), inputs).of_layer(name, 6, 6)
    assert [stream.name for stream in found] == [queries, keys]


def test_patches_and_the_colours_of_a_picture():
    colours = torch.randint(0, 256, (1, 3, 8, 12))
    processor = ViTImageProcessorPil(image_mean=[0.5, 0.4, 0.3], image_std=[0.2, 0.3, 0.4])
    mean, std = (torch.tensor(values)[:, None, None] for values in (processor.image_mean, processor.image_std))
    streams = Streams(tiny_model("vit"), {"pixel_values": (colours / 255 - mean) / std}, processor)
    picture, _ = streams.of_layer("vit.layers.0.attention", 7, 7)
    assert picture.grid == (2, 3) and picture.labels[:2] == ["[CLS]", "row 1, column 1"] and picture.special == [0]
    assert torch.equal(picture.pixels, colours[0].movedim(0, -1).byte())
    assert streams.of_layer("somewhere", 40, 3)[1].labels == ["0", "1", "2"]


def test_a_picture_in_a_text_belongs_to_the_vision_part():
    streams = Streams(tiny_model("llava"), tiny_inputs("llava"))
    assert streams.of_layer("model.vision_tower.encoder.layers.0.self_attn", 5, 5)[0].name == "picture"
    assert streams.of_layer("model.language_model.layers.0.self_attn", 13, 13)[0].name == "text"
