# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Tiny checkpoints, dense and sparse, with the tokenizer or image processor that they need for a task."""

import numpy as np
import pytest
import torch
from transformers import BertForSequenceClassification, PreTrainedTokenizerFast, ViTImageProcessor

from hf_sparse_hopfield import to_sparse_hopfield
from hf_sparse_hopfield.demo import make_tokenizer

from ..tiny_models import sharpened, tiny_config, tiny_model


LABELS = ("World", "Sports", "Business")
NAMED = {"id2label": dict(enumerate(LABELS)), "label2id": {name: number for number, name in enumerate(LABELS)}}


def word_tokenizer():
    """A token for each word of the demo text, padding, a mask and an end."""
    special = {"unk_token": "<unk>", "pad_token": "<pad>", "mask_token": "<mask>", "eos_token": "</s>"}
    return PreTrainedTokenizerFast(tokenizer_object=make_tokenizer().backend_tokenizer, **special)


def random_texts(count, seed=0):
    """Texts of 5 to 20 words that the tokenizer knows."""
    draw = np.random.default_rng(seed)
    words = sorted(word for word in make_tokenizer().get_vocab() if word.isalpha())
    return [" ".join(draw.choice(words, draw.integers(5, 20))) for _ in range(count)]


def save_both(folder, model, processor):
    """Save a model, dense and sparse. Returns the two folders."""
    for name in ("dense", "sparse"):
        if name == "sparse":
            model = to_sparse_hopfield(model, {"alpha": 1.5})
        model.save_pretrained(folder / name)
        processor.save_pretrained(folder / name)
    return str(folder / "dense"), str(folder / "sparse")


def _of_words(kind, **changes):
    tokenizer = word_tokenizer()
    sizes = {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    return tiny_model(kind, **sizes, **changes), tokenizer


@pytest.fixture(scope="session")
def language_models(tmp_path_factory):
    return save_both(tmp_path_factory.mktemp("llama"), *_of_words("llama"))


@pytest.fixture(scope="session")
def masked_models(tmp_path_factory):
    return save_both(tmp_path_factory.mktemp("bert"), *_of_words("bert"))


@pytest.fixture(scope="session")
def translators(tmp_path_factory):
    vocabulary = len(word_tokenizer())
    return save_both(tmp_path_factory.mktemp("marian"), *_of_words("marian", decoder_vocab_size=vocabulary))


@pytest.fixture(scope="session")
def classifiers(tmp_path_factory):
    tokenizer = word_tokenizer()
    config = tiny_config("bert", vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id, **NAMED)
    torch.manual_seed(0)
    model = sharpened(BertForSequenceClassification._from_config(config)).eval()
    return save_both(tmp_path_factory.mktemp("classifier"), model, tokenizer)


@pytest.fixture(scope="session")
def image_models(tmp_path_factory):
    processor = ViTImageProcessor(size={"height": 8, "width": 8})
    return save_both(tmp_path_factory.mktemp("vit"), tiny_model("vit", **NAMED), processor)
