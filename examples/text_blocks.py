# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The samples of a language model: a text, cut into blocks of equal length."""

import itertools
from dataclasses import dataclass, field
from typing import Any

from data_splits import DataArguments, limited
from datasets import Dataset

from hf_sparse_hopfield.demo.text import TEXT


@dataclass
class TextArguments(DataArguments):
    """Data of language modelling."""

    text_column: str = field(default="text", metadata={"help": "column with the text, one line or document per row"})
    block_size: int = field(default=256, metadata={"help": "tokens per sample: the text is cut into blocks"})


def smoke_text() -> dict[str, Dataset]:
    """The text embedded in the package."""
    lines = [line for line in TEXT.splitlines() if line.strip()] * 8
    parts = {"train": lines, "validation": lines[: len(lines) // 4], "test": lines[: len(lines) // 4]}
    return {split: Dataset.from_dict({"text": part}) for split, part in parts.items()}


def special_tokens(tokenizer: Any) -> tuple[list[int], list[int]]:
    """The tokens that a tokenizer puts before and after a text."""
    text = tokenizer("a", add_special_tokens=False)["input_ids"]
    whole = tokenizer("a")["input_ids"]
    start = next(i for i in range(len(whole)) if whole[i : i + len(text)] == text)
    return whole[:start], whole[start + len(text) :]


def text_blocks(dataset: Dataset, split: str, data: TextArguments, tokenizer: Any) -> Dataset:
    """
    Join the rows of a text by newlines and cut it into blocks of `block_size` tokens. The remainder is dropped.

    Args:
        dataset ([`~datasets.Dataset`]): The text.
        split (`str`): Name of the split.
        data ([`TextArguments`]): The column of the text and the block size.
        tokenizer: The tokenizer. The special tokens that it puts around a text go around every block.
    """
    before, after = special_tokens(tokenizer)
    length = data.block_size - len(before) - len(after)
    encoded = dataset.select_columns(data.text_column).map(
        lambda rows: tokenizer(
            [f"{text}\n" for text in rows[data.text_column]], add_special_tokens=False, return_attention_mask=False
        ),
        batched=True,
        remove_columns=data.text_column,
    )
    tokens = list(itertools.chain.from_iterable(encoded["input_ids"]))
    if len(tokens) < length:
        raise ValueError(f"the split {split!r} has {len(tokens)} tokens, less than one block of {data.block_size}.")
    starts = range(0, len(tokens) - length + 1, length)
    blocks = [[*before, *tokens[start : start + length], *after] for start in starts]
    return limited(Dataset.from_dict({"input_ids": blocks}), split, data)
