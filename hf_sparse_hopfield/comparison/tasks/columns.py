# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Columns of the data as model inputs: texts as tokens, labels as the numbers of the model."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from datasets import ClassLabel, Dataset
from transformers import PreTrainedConfig

from ...checks import shown


if TYPE_CHECKING:
    from .task import Task


_UNNAMED = re.compile(r"LABEL_\d+")  # the names that transformers gives labels without names


def check_column(rows: Dataset, argument: str, column: str) -> None:
    """Refuse a column that does not exist, or that has no value in some row."""
    if column not in rows.column_names:
        raise ValueError(
            f"the data have no column {column!r}, only {', '.join(map(repr, rows.column_names))}; {argument} names it."
        )
    missing = rows.with_format("arrow")[column][:].null_count
    if missing:
        raise ValueError(f"{missing} of {len(rows)} rows have no value in the column {column!r}.")


def parts(values: Sequence[Any], size: int) -> list[Sequence[Any]]:
    """Cut values into batches."""
    return [values[start : start + size] for start in range(0, len(values), size)]


def encode_texts(task: "Task", texts: Sequence[str], **names: Any) -> dict[str, Any]:
    """
    Tokenize a batch of texts.

    Args:
        task ([`Task`]): Has the tokenizer, the model and the length.
        texts (sequence of `str`): The texts.
        **names: More arguments for the tokenizer, such as `text_target`.
    """
    tokenizer = getattr(task.processor, "tokenizer", task.processor)
    if len(texts) > 1 and tokenizer.pad_token_id is None:
        raise ValueError(
            "the tokenizer has no padding token, so that texts of several lengths cannot be in one batch: batch_size must be 1."
        )
    return dict(
        tokenizer(
            list(texts),
            padding=len(texts) > 1,
            truncation=True,
            max_length=text_length(task),
            return_tensors="pt",
            **names,
        )
    )


def text_length(task: "Task") -> int:
    """Tokens of a text, at most: what the options say, or what the model has positions for."""
    tokenizer = getattr(task.processor, "tokenizer", task.processor)
    limits = (
        tokenizer.model_max_length,
        getattr(task.model.config.get_text_config(), "max_position_embeddings", None),
    )
    return min(task.options.length, *(limit for limit in limits if isinstance(limit, int) and limit > 0))


def model_labels(config: PreTrainedConfig) -> dict[int, str]:
    """The labels of a model by number."""
    return {int(number): str(name) for number, name in (config.id2label or {}).items()}


def label_numbers(rows: Dataset, column: str, known: dict[int, str]) -> list[int]:
    """
    Return labels as the numbers that a model has for them.

    Args:
        rows ([`~datasets.Dataset`]): The data.
        column (`str`): The column with the labels: words, or numbers from 0 up. Words, and the names of numbers where the data have
            some, are looked up among the labels of the model, without regard to case.
        known (`dict[int, str]`): The labels of the model.
    """
    check_column(rows, "label_column", column)
    feature, labels = rows.features[column], list(rows[column])
    if isinstance(feature, ClassLabel):
        if not all(_UNNAMED.fullmatch(name) for name in known.values()):
            labels = [feature.int2str(label) if label >= 0 else label for label in labels]
        elif feature.num_classes != len(known):
            raise ValueError(
                f"the data have {feature.num_classes} labels ({', '.join(feature.names)}), but the model has {len(known)}."
            )
    numbers = {name.casefold(): number for number, name in known.items()}
    found: list[Any] = [numbers.get(label.casefold()) if isinstance(label, str) else label for label in labels]
    for label, number in zip(labels, found, strict=True):
        if number not in known:
            raise ValueError(
                f"the column {column!r} has the label {shown(label)}, which the model does not know. It has "
                f"{shown(list(known.values()))}."
            )
    return [int(number) for number in found]
