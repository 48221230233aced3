#!/usr/bin/env python
# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Causal language modelling with Trainer, dense or with sparse Hopfield retrieval. `--smoke` runs a tiny example."""

from typing import Any

import torch
from language_model_training import run_language_model
from script_arguments import parse_arguments
from text_blocks import TextArguments
from transformers import AutoModelForCausalLM, default_data_collator


SMOKE = (
    "--model_type llama --vocab_size 400 --block_size 32 --max_steps 60 --learning_rate 1e-2 --config_overrides "
    "hidden_size=32,num_hidden_layers=2,num_attention_heads=4,num_key_value_heads=2,intermediate_size=64,"
    "max_position_embeddings=32,initializer_range=0.1"
).split()


def collate(blocks: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Make a batch of blocks. Each block is its own label: the model shifts it."""
    batch = default_data_collator(blocks)
    return {**batch, "labels": batch["input_ids"].clone()}


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Train, evaluate and test. Returns the summary."""
    arguments = parse_arguments(TextArguments, SMOKE, argv)
    return run_language_model(arguments, AutoModelForCausalLM, "gpt2", "text-generation", lambda tokenizer: collate)


if __name__ == "__main__":
    main()
