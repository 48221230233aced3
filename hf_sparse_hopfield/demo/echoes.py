# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""A task for a small language model: repeat the line before."""

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from torch.utils.data import Dataset
from transformers import PreTrainedTokenizerFast

from .text import TEXT


LINE, LINES = 8, 3  # words in a line, lines in a sample


class Echoes(Dataset):
    """
    Lines of the text, each followed by its echo. The echo is the target: the model has to attend to the line to predict it.

    Args:
        words (`torch.Tensor` of shape `(words,)`): The text, one number per word.
        count (`int`): Number of samples, each with `LINES` lines and their echoes.
        seed (`int`): Seed for choosing the lines.
    """

    def __init__(self, words: torch.Tensor, count: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        starts = torch.randint(0, len(words) - LINE, (count, LINES, 1), generator=generator)
        lines = words[starts + torch.arange(LINE)]
        self.input_ids = torch.stack([lines, lines], 2).flatten(1)
        self.labels = torch.stack([torch.full_like(lines, -100), lines], 2).flatten(1)

    def __len__(self) -> int:
        return len(self.input_ids)

    def __getitem__(self, index: int | slice) -> dict[str, torch.Tensor]:
        return {"input_ids": self.input_ids[index], "labels": self.labels[index]}

    def batches(self) -> list[dict[str, torch.Tensor]]:
        """All samples, 16 at a time."""
        return [self[start : start + 16] for start in range(0, len(self), 16)]


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Make a tokenizer with one token per word of the demo text."""
    normalizer, splitter = normalizers.Lowercase(), pre_tokenizers.Whitespace()
    pieces = splitter.pre_tokenize_str(normalizer.normalize_str(TEXT))
    vocabulary = ["<unk>", *sorted({word for word, _ in pieces})]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token="<unk>"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, splitter
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>")
