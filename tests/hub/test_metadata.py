# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import pytest

from hf_sparse_hopfield import to_sparse_hopfield
from hf_sparse_hopfield.hub import model_card
from hf_sparse_hopfield.hub.metadata import task_of

from ..tiny_models import SPECIFICATIONS, tiny_model


TASKS = {
    "bert": ("AutoModelForMaskedLM", "fill-mask"),
    "gpt2": ("AutoModelForCausalLM", "text-generation"),
    "t5": ("AutoModelForSeq2SeqLM", None),
    "bart": ("AutoModelForSeq2SeqLM", None),
    "marian": ("AutoModelForSeq2SeqLM", "translation"),
    "vit": ("AutoModelForImageClassification", "image-classification"),
    "whisper": ("AutoModelForSpeechSeq2Seq", "automatic-speech-recognition"),
    "llava": ("AutoModelForImageTextToText", "image-text-to-text"),
    "mpnet": ("AutoModelForMaskedLM", "fill-mask"),
}


@pytest.mark.parametrize("name", SPECIFICATIONS)
def test_every_kind_of_model_has_a_task(name):
    expected = TASKS.get(name, ("AutoModelForCausalLM", "text-generation"))
    model = to_sparse_hopfield(tiny_model(name))
    assert task_of(model) == expected
    card = model_card(model)
    assert card.data.pipeline_tag == expected[1] and f"{expected[0]}.from_pretrained(" in card.text
    assert card.text.count("| 4 | 2 | 1 | 1 |") == sum(
        hasattr(module, "sparse_hopfield") for module in model.modules()
    )
