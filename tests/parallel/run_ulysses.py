# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Runs checkpoints with whole sequences in one process, or with `ulysses` under `torchrun`."""

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM

import hf_sparse_hopfield  # noqa: F401  (registers the attention)
from hf_sparse_hopfield.diagnostics import sparsity_report
from hf_sparse_hopfield.parallel import ulysses
from tests.parallel.run_tensor import LEFT_PADDED, TOKENS


MASKS = {"causal": None, "left": LEFT_PADDED, "right": LEFT_PADDED.flip(1)}


def run(checkpoint: Path, parallel: bool = False) -> dict[str, Any]:
    """Logits, losses and gradients with each kind of padding; those of the whole batch in each process."""
    model = AutoModelForCausalLM.from_pretrained(checkpoint)
    results: dict[str, Any] = {}
    with ulysses(model) if parallel else nullcontext():
        for name, mask in MASKS.items():
            for checkpointing in (False, True):
                results[f"{name} {checkpointing}"] = whole(model, mask, checkpointing, parallel)
        model.eval()
        results["report"] = sparsity_report(model, [{"input_ids": TOKENS, "attention_mask": LEFT_PADDED}]).to_dict()
    with torch.no_grad():  # outside of the context, the model is as it was
        results["outside"] = model(input_ids=TOKENS).logits
    return results


def whole(model: torch.nn.Module, mask: torch.Tensor | None, checkpointing: bool, parallel: bool) -> dict[str, Any]:
    """Run a model once, forward and backward."""
    model.train()
    model.zero_grad()
    model.gradient_checkpointing_enable() if checkpointing else model.gradient_checkpointing_disable()
    labels = TOKENS if mask is None else TOKENS.masked_fill(mask == 0, -100)
    output = model(input_ids=TOKENS, attention_mask=mask, labels=labels)
    output.loss.backward()
    found = {"logits": output.logits.detach(), "loss": output.loss.detach()}
    found |= {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    if parallel:
        parts = [torch.empty_like(found["logits"]) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, found["logits"].contiguous())
        for name, value in found.items():
            if name != "logits":
                dist.all_reduce(value)
        found["logits"] = torch.cat(parts, 1)
    return found


if __name__ == "__main__":
    dist.init_process_group("gloo")
    folder = Path(sys.argv[1])
    for checkpoint in sorted((folder / "checkpoints").iterdir()):
        torch.save(run(checkpoint, parallel=True), folder / f"{checkpoint.name}.{dist.get_rank()}.pt")
    dist.destroy_process_group()
