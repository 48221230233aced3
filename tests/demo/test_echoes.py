# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import torch

from hf_sparse_hopfield.demo.echoes import LINE, LINES, Echoes, make_tokenizer
from hf_sparse_hopfield.demo.text import TEXT


def test_each_echo_repeats_its_line_and_is_the_target():
    data = Echoes(torch.arange(100), count=20, seed=0)
    lines, echoes = data.input_ids.view(20, LINES, 2, LINE).unbind(2)
    ignored, targets = data.labels.view(20, LINES, 2, LINE).unbind(2)
    assert torch.equal(lines, echoes) and torch.equal(targets, echoes) and (ignored == -100).all()
    assert len(data) == 20 and [len(batch["input_ids"]) for batch in data.batches()] == [16, 4]
    assert torch.equal(data.input_ids, Echoes(torch.arange(100), 20, 0).input_ids)
    assert not torch.equal(data.input_ids, Echoes(torch.arange(100), 20, 1).input_ids)


def test_the_tokenizer_knows_every_word_of_the_text():
    tokenizer = make_tokenizer()
    assert tokenizer.unk_token_id not in tokenizer(TEXT)["input_ids"]
    assert tokenizer("xylophone")["input_ids"] == [tokenizer.unk_token_id]
