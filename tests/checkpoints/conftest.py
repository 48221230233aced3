# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import pytest

from hf_sparse_hopfield.demo import make_tokenizer
from hf_sparse_hopfield.demo.text import TEXT

from ..tiny_models import tiny_model


@pytest.fixture
def source(tmp_path):
    """A dense checkpoint with a tokenizer, and a text for it."""
    tokenizer = make_tokenizer()
    directory = tmp_path / "dense"
    tiny_model("llama", vocab_size=len(tokenizer)).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    (tmp_path / "text.txt").write_text(TEXT)
    return directory
