#!/usr/bin/env python
# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Masked language modelling with Trainer, dense or with sparse Hopfield retrieval. `--smoke` runs a tiny example."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from language_model_training import run_language_model
from script_arguments import parse_arguments
from text_blocks import TextArguments
from transformers import AutoModelForMaskedLM, DataCollatorForLanguageModeling, EvalPrediction

from hf_sparse_hopfield.metrics import load_metric


SMOKE = (
    "--model_type bert --vocab_size 400 --block_size 32 --max_steps 80 --learning_rate 5e-3 --config_overrides "
    "hidden_size=32,num_hidden_layers=2,num_attention_heads=4,intermediate_size=64,max_position_embeddings=32,"
    "initializer_range=0.1,hidden_dropout_prob=0.0"
).split()


@dataclass
class MaskedLMArguments(TextArguments):
    """Data of masked language modelling."""

    mask_share: float = field(default=0.15, metadata={"help": "share of the tokens to mask and predict"})


def masked_accuracy(prediction: EvalPrediction) -> dict[str, float]:
    """Share of the masked tokens that are predicted correctly."""
    masked = prediction.label_ids != -100
    return load_metric("accuracy").compute(
        predictions=prediction.predictions[masked], references=prediction.label_ids[masked]
    )


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Train, evaluate and test. Returns the summary."""
    arguments = parse_arguments(MaskedLMArguments, SMOKE, argv)

    def make_collator(tokenizer: Any) -> Callable:
        if tokenizer.mask_token is None:
            raise ValueError(f"the tokenizer of {arguments.model.model_name_or_path!r} has no mask token.")
        return DataCollatorForLanguageModeling(tokenizer, mlm_probability=arguments.data.mask_share)

    return run_language_model(
        arguments,
        AutoModelForMaskedLM,
        "bert",
        "fill-mask",
        make_collator,
        template="<s> $A </s>",
        compute_metrics=masked_accuracy,
        preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1),
    )


if __name__ == "__main__":
    main()
