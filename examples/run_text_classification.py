#!/usr/bin/env python
# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Text classification with Trainer, dense or with sparse Hopfield retrieval. `--smoke` shows that it works."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from common import (
    DataArguments,
    check_columns,
    check_labels,
    finish,
    first_batches,
    label_numbers,
    load_config,
    load_model,
    load_splits,
    load_tokenizer,
    parse_arguments,
    token_values,
    train,
)
from datasets import Dataset
from transformers import AutoModelForSequenceClassification, DataCollatorWithPadding, EvalPrediction

from hf_sparse_hopfield.extras import require
from hf_sparse_hopfield.training import SparseHopfieldTrainer


SMOKE = (
    "--model_type bert --vocab_size 300 --max_length 16 --max_steps 60 --learning_rate 3e-3 --calibration_batches 2 "
    "--config_overrides hidden_size=32,num_hidden_layers=2,num_attention_heads=4,intermediate_size=64"
).split()


@dataclass
class TextClassificationArguments(DataArguments):
    """Data of text classification."""

    text_column: str = field(default="text", metadata={"help": "column with the text"})
    text_pair_column: str | None = field(default=None, metadata={"help": "column with a second text, if there is one"})
    label_column: str = field(default="label", metadata={"help": "column with the labels: integers from 0, or words"})
    num_labels: int | None = field(default=None, metadata={"help": "how many classes (default: as in the data)"})
    max_length: int = field(default=128, metadata={"help": "longer texts are cut to so many tokens"})


def smoke_data() -> dict[str, Dataset]:
    """Sentences whose one praising or blaming word is the label."""
    generator = np.random.default_rng(0)
    things = ["the film", "this song", "a meal", "our trip", "the book", "her play"]
    words = (["dull", "poor", "weak", "bad"], ["good", "fine", "bright", "great"])

    def split(count: int) -> Dataset:
        labels = generator.integers(0, 2, count).tolist()
        texts = [f"{generator.choice(things)} was {generator.choice(words[label])} today" for label in labels]
        return Dataset.from_dict({"text": texts, "label": labels})

    return {"train": split(160), "validation": split(32), "test": split(32)}


def classification_metrics(prediction: EvalPrediction) -> dict[str, float]:
    """Accuracy and macro F1 (from scikit-learn: `evaluate` would fetch the code of its metrics from the Hub)."""
    metrics = require("sklearn.metrics", "examples")
    logits = prediction.predictions[0] if isinstance(prediction.predictions, tuple) else prediction.predictions
    chosen = np.argmax(logits, -1)
    return {
        "accuracy": float(metrics.accuracy_score(prediction.label_ids, chosen)),
        "macro_f1": float(metrics.f1_score(prediction.label_ids, chosen, average="macro", zero_division=0)),
    }


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Train, evaluate, test; returns the summary."""
    model_arguments, data, sparse, training = parse_arguments(TextClassificationArguments, SMOKE, argv)
    splits = load_splits(data, smoke_data, test=training.do_predict)
    texts = {"text_column": data.text_column, "text_pair_column": data.text_pair_column}
    check_columns(splits, {**texts, "label_column": data.label_column})
    labels = check_labels(splits, data.label_column, data.num_labels)
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
    config = load_config(
        model_arguments,
        "bert",
        **token_values(model_arguments, tokenizer),
        num_labels=len(labels),
        id2label=dict(enumerate(labels)),
        label2id={name: number for number, name in enumerate(labels)},
    )
    model = load_model(model_arguments, config, AutoModelForSequenceClassification)
    collator = DataCollatorWithPadding(tokenizer)
    # without labels: the head of the classifier is fresh, and its loss says nothing yet
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
    training_metrics = train(trainer)
    quality: dict[str, float] = {}
    if training.do_eval:
        quality |= trainer.evaluate()
    if training.do_predict and "test" in encoded:
        quality |= trainer.predict(encoded["test"]).metrics
    quality = {key: value for key, value in quality.items() if key.endswith(("accuracy", "f1", "loss"))}
    return finish(trainer, training_metrics, quality, "text-classification", data, model_arguments.model_name_or_path)


if __name__ == "__main__":
    main()
