# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Loads checkpoints, runs, observes, trains and saves them: in one process, or tensor parallel under `torchrun`."""

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM
from transformers.distributed import DistributedConfig

import hf_sparse_hopfield  # noqa: F401  (registers the attention)
from hf_sparse_hopfield.diagnostics import sparsity_report


TOKENS = torch.randint(3, 90, (4, 12), generator=torch.Generator().manual_seed(0))
LEFT_PADDED = (torch.arange(12) >= torch.tensor([0, 3, 1, 5])[:, None]).long()


def run(checkpoint: Path, output: Path, distributed: dict | None = None) -> dict[str, Any]:
    """What a model computes, and what it becomes by training."""
    kwargs = {} if distributed is None else {"distributed_config": DistributedConfig(**distributed)}
    model = AutoModelForCausalLM.from_pretrained(checkpoint, **kwargs).eval()
    batch = {"input_ids": TOKENS, "attention_mask": LEFT_PADDED}
    results: dict[str, Any] = {}
    with torch.no_grad():
        results["logits"] = model(**batch).logits
        results["tokens"] = model.generate(**batch, max_new_tokens=5, do_sample=False)
    results["report"] = sparsity_report(model, [batch]).to_dict()
    results["losses"] = train(model)
    with torch.no_grad():
        results["trained"] = model(**batch).logits
    model.save_pretrained(output)
    return results


def train(model: torch.nn.Module, rows: slice = slice(None)) -> list[float]:
    """Three steps of two accumulated batches."""
    model.train()
    # Without foreach: plain and sharded weights cannot share one call. Not Adam, which makes a large step of any rounding
    # error in a gradient that should be zero.
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    losses = []
    for _ in range(3):
        for half in (slice(0, 2), slice(2, 4)):
            tokens, mask = TOKENS[half][rows], LEFT_PADDED[half][rows]
            labels = tokens.masked_fill(mask == 0, -100)
            loss = model(input_ids=tokens, attention_mask=mask, labels=labels).loss
            (loss / 2).backward()
            losses.append(loss.item())
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    return losses


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    sizes = {"tp_size": int(sys.argv[2])}
    for checkpoint in sorted((folder / "checkpoints").iterdir()):
        results = run(checkpoint, folder / "trained" / checkpoint.name, sizes)
        torch.save(results, folder / f"{checkpoint.name}.{dist.get_rank()}.pt")
    dist.destroy_process_group()
