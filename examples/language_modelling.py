# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""What causal and masked language modelling share: a text in blocks, perplexity, and the course of a script."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from common import Arguments, run
from data_loading import DataArguments, check_texts, first_batches, limited, load_splits, wanted_splits
from datasets import Dataset
from modelling import load_config, load_model, load_tokenizer, token_values
from transformers.trainer_utils import EvalLoopOutput

from hf_sparse_hopfield.demo.text import TEXT
from hf_sparse_hopfield.training import SparseHopfieldTrainer


@dataclass
class TextArguments(DataArguments):
    """Data of language modelling."""

    text_column: str = field(default="text", metadata={"help": "column with the text, one line or document a row"})
    block_size: int = field(default=256, metadata={"help": "tokens in a sample: the text is cut into such blocks"})


class LanguageModelTrainer(SparseHopfieldTrainer):
    """A trainer that reports perplexity beside the loss."""

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> EvalLoopOutput:
        """As Trainer's."""
        output = super().evaluation_loop(*args, **kwargs)
        losses = {name: value for name, value in output.metrics.items() if name.endswith("_loss")}
        output.metrics.update({f"{name.removesuffix('loss')}perplexity": math.exp(losses[name]) for name in losses})
        return output


def smoke_text() -> dict[str, Dataset]:
    """The text that the package has embedded."""
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
    A text, its rows joined by newlines, as blocks of `block_size` tokens (what is left over at the end is dropped).

    Args:
        dataset ([`~datasets.Dataset`]): The text.
        split (`str`): What it is called.
        data ([`TextArguments`]): Its column, and the length of a block.
        tokenizer: Where it puts tokens around a text, these go around every block.
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


def run_language_model(
    arguments: Arguments,
    auto_class: type,
    default_type: str,
    task: str,
    make_collator: Callable[[Any], Callable],
    template: str | None = None,
    **options: Any,
) -> dict[str, Any]:
    """
    Train, evaluate, test; returns the summary.

    Args:
        arguments ([`Arguments`]): The arguments; the data are [`TextArguments`].
        auto_class (`type`): Auto class of the model.
        default_type (`str`): Type of a fresh model where none is named.
        task (`str`): Pipeline tag.
        make_collator (`Callable`): Gives what makes a batch of blocks, for a tokenizer.
        template (`str`, *optional*): What a tokenizer that is trained here puts around a text.
        **options: For the trainer.
    """
    model_arguments, data, sparse, training, _ = arguments
    splits = load_splits(data, smoke_text, wanted=wanted_splits(training), in_order=True)
    check_texts(splits, {"text_column": data.text_column}, may_be_empty=True)
    tokenizer = load_tokenizer(model_arguments, next(iter(splits.values()))[data.text_column], template)
    collator = make_collator(tokenizer)
    blocks = {split: text_blocks(splits[split], split, data, tokenizer) for split in splits}
    config = load_config(model_arguments, default_type, **token_values(model_arguments, tokenizer))
    model = load_model(model_arguments, config, auto_class)
    model = sparse.prepare(model, first_batches(blocks.get("train"), collator, sparse.calibration_batches, 4))
    training.include_num_input_tokens_seen = "all"
    training.prediction_loss_only = "compute_metrics" not in options
    trainer = LanguageModelTrainer(
        model=model,
        args=training,
        train_dataset=blocks.get("train"),
        eval_dataset=blocks.get("validation"),
        data_collator=collator,
        processing_class=tokenizer,
        sparse_hopfield_args=sparse,
        **options,
    )
    return run(trainer, arguments, blocks, task, keep=("loss", "perplexity", "accuracy"))
