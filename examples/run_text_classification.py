#!/usr/bin/env python
# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Text classification with Trainer, dense or with sparse Hopfield retrieval. `--smoke` runs a tiny example."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from data_checks import check_columns, check_texts, label_numbers
from data_splits import LabelledDataArguments, first_batches, load_splits, wanted_splits
from datasets import Dataset
from model_loading import class_names, label_values, load_config, load_model
from script_arguments import parse_arguments
from tokenizer_loading import load_tokenizer, token_values
from training_run import run
from transformers import AutoModelForSequenceClassification, DataCollatorWithPadding, EvalPrediction

from hf_sparse_hopfield.metrics import load_metric
from hf_sparse_hopfield.training import SparseHopfieldTrainer


SMOKE = (
    "--model_type bert --vocab_size 300 --max_length 16 --max_steps 60 --learning_rate 3e-3 --calibration_batches 2 "
    "--config_overrides hidden_size=32,num_hidden_layers=2,num_attention_heads=4,intermediate_size=64"
).split()


@dataclass
class TextClassificationArguments(LabelledDataArguments):
    """Data of text classification."""

    text_column: str = field(default="text", metadata={"help": "column with the text"})
    text_pair_column: str | None = field(default=None, metadata={"help": "column with a second text, if any"})
    max_length: int = field(default=128, metadata={"help": "maximum number of tokens; longer texts are truncated"})


def smoke_data() -> dict[str, Dataset]:
    """Sentences labelled by their one positive or negative word."""
    generator = np.random.default_rng(0)
    things = ["the film", "this song", "a meal", "our trip", "the book", "her play"]
    words = (["dull", "poor", "weak", "bad"], ["good", "fine", "bright", "great"])

    def split(count: int) -> Dataset:
        labels = generator.integers(0, 2, count).tolist()
        texts = [f"{generator.choice(things)} was {generator.choice(words[label])} today" for label in labels]
        return Dataset.from_dict({"text": texts, "label": labels})

    return {"train": split(160), "validation": split(32), "test": split(32)}


def classification_metrics(prediction: EvalPrediction) -> dict[str, float]:
    """Accuracy and macro F1."""
    logits = prediction.predictions[0] if isinstance(prediction.predictions, tuple) else prediction.predictions
    pairs = {"predictions": np.argmax(logits, -1), "references": prediction.label_ids}
    return {
        **load_metric("accuracy").compute(**pairs),
        "macro_f1": load_metric("f1").compute(**pairs, average="macro")["f1"],
    }


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Train, evaluate and test. Returns the summary."""
    arguments = parse_arguments(TextClassificationArguments, SMOKE, argv)
    model_arguments, data, sparse, training, _ = arguments
    splits = load_splits(data, smoke_data, wanted=wanted_splits(training))
    texts = {"text_column": data.text_column, "text_pair_column": data.text_pair_column}
    check_texts(splits, texts)
    check_columns(splits, {"label_column": data.label_column})
    labels = class_names(model_arguments, data, splits)
    columns = [column for column in texts.values() if column]
    train_texts = (text for column in columns for text in next(iter(splits.values()))[column])
    tokenizer = load_tokenizer(model_arguments, train_texts)

    def encode(dataset: Dataset) -> Dataset:
        numbers = label_numbers(dataset, data.label_column, labels)
        encoded = dataset.select_columns(columns).map(
            lambda rows: tokenizer(*(rows[column] for column in columns), truncation=True, max_length=data.max_length),
            batched=True,
            remove_columns=columns,
        )
        return encoded.add_column("labels", numbers)

    encoded = {split: encode(dataset) for split, dataset in splits.items()}
    config = load_config(model_arguments, "bert", **token_values(model_arguments, tokenizer), **label_values(labels))
    model = load_model(model_arguments, config, AutoModelForSequenceClassification)
    collator = DataCollatorWithPadding(tokenizer)
    # without labels: the classifier head may be new, and then its loss is meaningless
    batches = first_batches(encoded.get("train"), collator, sparse.calibration_batches, 16, labels=False)
    model = sparse.prepare(model, batches)
    training.include_num_input_tokens_seen = "non_padding"
    trainer = SparseHopfieldTrainer(
        model=model,
        args=training,
        train_dataset=encoded.get("train"),
        eval_dataset=encoded.get("validation"),
        data_collator=collator,
        processing_class=tokenizer,
        compute_metrics=classification_metrics,
        sparse_hopfield_args=sparse,
    )
    return run(trainer, arguments, encoded, "text-classification", keep=("accuracy", "f1", "loss"))


if __name__ == "__main__":
    main()
