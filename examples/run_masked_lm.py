#!/usr/bin/env python
# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Masked language modelling with Trainer, dense or with sparse Hopfield retrieval. `--smoke` shows that it works."""

import math
from dataclasses import dataclass, field
from typing import Any

from common import (
    TextArguments,
    check_columns,
    finish,
    first_batches,
    load_config,
    load_model,
    load_splits,
    load_tokenizer,
    parse_arguments,
    smoke_text,
    text_blocks,
    token_values,
    train,
)
from transformers import AutoModelForMaskedLM, DataCollatorForLanguageModeling, EvalPrediction, set_seed

from hf_sparse_hopfield.training import SparseHopfieldTrainer


SMOKE = (
    "--model_type bert --vocab_size 400 --block_size 32 --max_steps 80 --learning_rate 5e-3 --config_overrides "
    "hidden_size=32,num_hidden_layers=2,num_attention_heads=4,intermediate_size=64,max_position_embeddings=32,"
    "initializer_range=0.1,hidden_dropout_prob=0.0"
).split()


@dataclass
class MaskedLMArguments(TextArguments):
    """Data of masked language modelling."""

    mask_share: float = field(default=0.15, metadata={"help": "share of the tokens to foretell"})


def masked_accuracy(prediction: EvalPrediction) -> dict[str, float]:
    """Share of the masked tokens that were foretold right."""
    masked = prediction.label_ids != -100
    return {"accuracy": float((prediction.predictions == prediction.label_ids)[masked].mean())}


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Train, evaluate, test; returns the summary."""
    model_arguments, data, sparse, training = parse_arguments(MaskedLMArguments, SMOKE, argv)
    splits = load_splits(data, smoke_text, test=training.do_predict)
    check_columns(splits, {"text_column": data.text_column})
    tokenizer = load_tokenizer(model_arguments, next(iter(splits.values()))[data.text_column])
    if tokenizer.mask_token is None:
        raise ValueError(f"the tokenizer of {model_arguments.model_name_or_path!r} has no mask token.")
    blocks = {split: text_blocks(splits[split], split, data, tokenizer) for split in splits}
    blocks = {split: dataset.remove_columns("labels") for split, dataset in blocks.items()}
    config = load_config(model_arguments, "bert", **token_values(model_arguments, tokenizer))
    model = load_model(model_arguments, config, AutoModelForMaskedLM)
    collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=data.mask_share)
    model = sparse.prepare(model, first_batches(blocks.get("train"), collator, sparse.calibration_batches, 4))
    training.include_num_input_tokens_seen = "all"
    trainer = SparseHopfieldTrainer(
        model=model,
        args=training,
        train_dataset=blocks.get("train"),
        eval_dataset=blocks.get("validation"),
        data_collator=collator,
        processing_class=tokenizer,
        compute_metrics=masked_accuracy,
        preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1),
        sparse_hopfield_args=sparse,
    )
    training_metrics = train(trainer)
    quality: dict[str, float] = {}
    for wanted, split in ((training.do_eval, "validation"), (training.do_predict, "test")):
        if wanted and split in blocks:
            set_seed(training.seed)  # the same tokens are masked, whatever was trained before
            metrics = trainer.evaluate(blocks[split], metric_key_prefix=split)
            quality |= {f"{split}_{name}": metrics[f"{split}_{name}"] for name in ("loss", "accuracy")}
            quality[f"{split}_perplexity"] = math.exp(metrics[f"{split}_loss"])
    return finish(trainer, training_metrics, quality, "fill-mask", data, model_arguments.model_name_or_path)


if __name__ == "__main__":
    main()
