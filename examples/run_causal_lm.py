#!/usr/bin/env python
# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Causal language modelling with Trainer, dense or with sparse Hopfield retrieval. `--smoke` shows that it works."""

import math
from dataclasses import dataclass
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
from transformers import AutoModelForCausalLM, default_data_collator

from hf_sparse_hopfield.training import SparseHopfieldTrainer


SMOKE = (
    "--model_type llama --vocab_size 400 --block_size 32 --max_steps 60 --learning_rate 1e-2 --config_overrides "
    "hidden_size=32,num_hidden_layers=2,num_attention_heads=4,num_key_value_heads=2,intermediate_size=64,"
    "max_position_embeddings=32,initializer_range=0.1"
).split()


@dataclass
class CausalLMArguments(TextArguments):
    """Data of causal language modelling."""


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Train, evaluate, test; returns the summary."""
    model_arguments, data, sparse, training = parse_arguments(CausalLMArguments, SMOKE, argv)
    splits = load_splits(data, smoke_text, test=training.do_predict)
    check_columns(splits, {"text_column": data.text_column})
    tokenizer = load_tokenizer(model_arguments, next(iter(splits.values()))[data.text_column], template=None)
    blocks = {split: text_blocks(splits[split], split, data, tokenizer) for split in splits}
    config = load_config(model_arguments, "gpt2", **token_values(model_arguments, tokenizer))
    model = load_model(model_arguments, config, AutoModelForCausalLM)
    model = sparse.prepare(
        model, first_batches(blocks.get("train"), default_data_collator, sparse.calibration_batches, 4)
    )
    training.include_num_input_tokens_seen = "all"
    training.prediction_loss_only = True
    trainer = SparseHopfieldTrainer(
        model=model,
        args=training,
        train_dataset=blocks.get("train"),
        eval_dataset=blocks.get("validation"),
        data_collator=default_data_collator,
        processing_class=tokenizer,
        sparse_hopfield_args=sparse,
    )
    training_metrics = train(trainer)
    quality: dict[str, float] = {}
    for wanted, split in ((training.do_eval, "validation"), (training.do_predict, "test")):
        if wanted and split in blocks:
            loss = trainer.evaluate(blocks[split], metric_key_prefix=split)[f"{split}_loss"]
            quality |= {f"{split}_loss": loss, f"{split}_perplexity": math.exp(loss)}
    return finish(trainer, training_metrics, quality, "text-generation", data, model_arguments.model_name_or_path)


if __name__ == "__main__":
    main()
