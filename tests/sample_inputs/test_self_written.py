# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import pytest
import torch

from hf_sparse_hopfield.demo import make_tokenizer
from hf_sparse_hopfield.sample_inputs import self_written

from ..tiny_models import tiny_model


def test_a_model_writes_windows_of_its_own():
    model = tiny_model("llama")
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    windows = self_written(model, None, windows=5, length=12, seed=1)
    assert torch.equal(torch.random.get_rng_state(), before), "the random numbers of the caller are left alone"
    assert windows.shape == (5, 12) and len({tuple(window.tolist()) for window in windows}) == 5
    assert torch.equal(windows, self_written(model, None, windows=5, length=12, seed=1))
    assert not torch.equal(windows, self_written(model, None, windows=5, length=12, seed=2))


def test_words_are_drawn_from_the_distribution_of_the_model():
    model = tiny_model("llama", vocab_size=12)
    with torch.no_grad():
        model.lm_head.weight.mul_(40)  # far from uniform
    windows = self_written(model, None, windows=8000, length=3)[::2]
    with torch.no_grad():
        expected = model(windows[:1, :1]).logits[0, -1].softmax(-1)
    assert expected.max() > 0.2
    found = torch.bincount(windows[:, 1], minlength=12) / len(windows)
    assert (found - expected).abs().max() < 0.03, "4000 draws, so four standard errors are 0.032 at most"


def test_a_chat_model_also_writes_conversations():
    tokenizer = make_tokenizer()
    tokenizer.chat_template = "{% for message in messages %}the {{ message['content'] }}{% endfor %}"
    model = tiny_model("llama", vocab_size=len(tokenizer))
    windows = self_written(model, tokenizer, windows=72, length=8)
    begin = tokenizer("the ", add_special_tokens=False)["input_ids"]
    conversations = [window[: len(begin)].tolist() == begin for window in windows]
    assert all(conversations[2::3]) and not any(conversations[::3]) and not any(conversations[1::3])


def test_every_other_window_begins_with_a_random_word():
    windows = self_written(tiny_model("llama"), None, windows=40, length=6)
    assert (windows[:, 0] == windows[0, 0]).all(), "the token that begins a text"
    words = windows[1::2, 1].tolist()
    assert len(set(words)) > 10 and windows[0, 0].item() not in words


@pytest.mark.parametrize("name", ["bert", "t5", "vit"])
def test_other_models_are_refused(name):
    with pytest.raises(ValueError, match="needs a causal language model"):
        self_written(tiny_model(name), None, windows=1, length=4)
