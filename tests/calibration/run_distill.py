# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Distils a tiny model, to be launched in one or several processes: `run_distill.py FOLDER RANK`, 0 for all weights."""

import json
import os
import sys
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM, TrainingArguments

from hf_sparse_hopfield import distill, to_sparse_hopfield


def main(folder: Path, rank: int, accumulated: int = 1) -> dict:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "vocab_size": 40}
    model = to_sparse_hopfield(
        LlamaForCausalLM(LlamaConfig(**sizes, num_hidden_layers=2)), {"alpha": 1.5, "beta": 9.0}
    )
    batches = [{"input_ids": torch.randint(0, 40, (2, 12))} for _ in range(10)]
    arguments = TrainingArguments(
        str(folder / "checkpoints"), use_cpu=True, report_to=[], save_strategy="no", logging_steps=1,
        gradient_accumulation_steps=accumulated,
    )  # fmt: skip
    model, report = distill(
        model, batches, steps=4, layer_steps=2, holdout=2, rank=rank or None, max_support=0.3, progress=False,
        training_arguments=arguments,
    )  # fmt: skip
    weights = {name: weight.tolist() for name, weight in model.state_dict().items() if "self_attn" in name}
    return {
        "weights": weights,
        "settings": model.config.sparse_hopfield.to_dict(),
        "tokens": report.tokens,
        "divergence": report.held_out["after"]["divergence"],
    }


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    result = main(folder, int(sys.argv[2]))
    (folder / f"{os.environ.get('RANK', '0')}.json").write_text(json.dumps(result))
