# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import gzip

import pytest
import torch
from tokenizers.processors import TemplateProcessing

from hf_sparse_hopfield.demo import make_tokenizer
from hf_sparse_hopfield.demo.text import TEXT
from hf_sparse_hopfield.sample_inputs import check_batch, read_text, text_batches

from ..tiny_families import tiny_family
from ..tiny_models import tiny_model


def tokenizer_with(template):
    tokenizer = make_tokenizer()
    tokenizer.add_special_tokens({"cls_token": "[CLS]", "sep_token": "[SEP]"})
    if template is not None:
        special = [(name, tokenizer.convert_tokens_to_ids(name)) for name in ("[CLS]", "[SEP]")]
        tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single=template, special_tokens=special)
    return tokenizer


@pytest.mark.parametrize(
    "template, before, after",
    [
        (None, [], []),
        ("[CLS] $A", ["[CLS]"], []),
        ("[CLS] $A [SEP]", ["[CLS]"], ["[SEP]"]),
        ("$A [SEP]", [], ["[SEP]"]),
    ],
)
def test_windows_look_as_the_tokenizer_has_them(template, before, after):
    tokenizer = tokenizer_with(template)
    batches = text_batches(tiny_model("bert"), tokenizer, TEXT, length=12, count=3, spread=False)
    expected = tokenizer(TEXT, add_special_tokens=False)["input_ids"]
    inside = []
    for batch in batches:
        assert set(batch) == {"input_ids"} and batch["input_ids"].shape == (1, 12)
        window = batch["input_ids"][0].tolist()
        assert tokenizer.convert_ids_to_tokens(window[: len(before)]) == before
        assert tokenizer.convert_ids_to_tokens(window[12 - len(after) :]) == after
        inside += window[len(before) : 12 - len(after)]
    assert inside == expected[: len(inside)]


def test_language_models_get_labels_and_seeds_choose_windows():
    model, tokenizer = tiny_model("llama"), make_tokenizer()
    first, again, other = (text_batches(model, tokenizer, TEXT, length=8, count=4, seed=seed) for seed in (0, 0, 1))
    assert all(torch.equal(batch["labels"], batch["input_ids"]) for batch in first)
    assert [b["input_ids"].tolist() for b in first] == [b["input_ids"].tolist() for b in again]
    assert [b["input_ids"].tolist() for b in first] != [b["input_ids"].tolist() for b in other]
    with pytest.raises(ValueError, match="too little"):
        text_batches(model, tokenizer, "word", length=8)


def test_a_text_may_be_compressed(tmp_path):
    (tmp_path / "plain.txt").write_text("ä\n", encoding="utf-8")
    with gzip.open(tmp_path / "packed.txt.gz", "wt", encoding="utf-8") as file:
        file.write("ä\n")
    assert read_text(tmp_path / "plain.txt") == read_text(tmp_path / "packed.txt.gz") == "ä\n"


@pytest.mark.parametrize("name", ["latin.txt", "not_packed.txt.gz", "cut.txt.gz"])
def test_a_file_that_cannot_be_read_is_named(tmp_path, name):
    content = {"latin.txt": b"\xff", "not_packed.txt.gz": b"words", "cut.txt.gz": gzip.compress(b"words" * 99)[:-9]}
    (tmp_path / name).write_bytes(content[name])
    with pytest.raises(ValueError, match=f"{name}' cannot be read as {'a text' if name == 'latin.txt' else 'gzip'}"):
        read_text(tmp_path / name)


def test_what_a_model_does_not_take_is_told():
    with pytest.raises(ValueError, match="ViTForImageClassification takes 'pixel_values', not a text"):
        text_batches(tiny_model("vit"), make_tokenizer(), TEXT)
    with pytest.raises(ValueError, match="CLIPModel does not take input_ids alone"):
        check_batch(tiny_family("clip"), {"input_ids": torch.ones(1, 4, dtype=torch.long)})


def test_a_processor_is_asked_for_its_tokenizer():
    class Processor:
        tokenizer = make_tokenizer()

    class ImageProcessor:
        pass

    batches = [text_batches(tiny_model("bert"), p, TEXT, length=8) for p in (Processor(), Processor.tokenizer)]
    assert all(torch.equal(a["input_ids"], b["input_ids"]) for a, b in zip(*batches, strict=True))
    with pytest.raises(ValueError, match="needs a tokenizer, and the checkpoint has only a ImageProcessor"):
        text_batches(tiny_model("bert"), ImageProcessor(), TEXT)
