# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Runs checkpoints with whole sequences in one process, or with `ulysses` under `torchrun`."""

import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSequenceClassification

from hf_sparse_hopfield.diagnostics import sparsity_report
from hf_sparse_hopfield.parallel import ulysses
from tests.parallel.run_tensor import LEFT_PADDED, TOKENS
from tests.tiny_models import tiny_model


POSITIONS = torch.arange(TOKENS.shape[1])[None]
PADDINGS = {"none": None, "left": LEFT_PADDED, "right": LEFT_PADDED.flip(1)}


def run_causal(checkpoint: Path, parallel: bool = False) -> dict[str, Any]:
    """Logits, loss and gradients with each kind of padding and with gradient checkpointing; then the sparsity report."""
    model = AutoModelForCausalLM.from_pretrained(checkpoint)
    results: dict[str, Any] = {}
    with ulysses(model) if parallel else nullcontext():
        for name, mask in PADDINGS.items():
            results[name] = _run_once(model, mask, parallel)
        model.gradient_checkpointing_enable()
        results["checkpointing"] = _run_once(model, LEFT_PADDED, parallel)
        results["data parallel"] = _run_once(model, LEFT_PADDED, parallel, wrapped=True)
        model.eval()
        batch = {"input_ids": TOKENS, "attention_mask": LEFT_PADDED}
        results["report"] = sparsity_report(model, [batch]).to_dict()["layers"]
    with torch.no_grad():
        results["outside"] = {"logits": model(input_ids=TOKENS).logits}
    return results


def _run_once(model: Any, mask: torch.Tensor | None, parallel: bool, wrapped: bool = False) -> dict[str, torch.Tensor]:
    """Forward and backward; the logits of all processes, and the sum of their losses and gradients."""
    model.train()
    model.zero_grad()
    labels = TOKENS if mask is None else TOKENS.masked_fill(mask == 0, -100)
    called = DistributedDataParallel(model) if parallel and wrapped else model
    output = called(input_ids=TOKENS, attention_mask=mask, labels=labels)
    # DistributedDataParallel sums gradients, and divides by the number of processes
    (output.loss * (dist.get_world_size() if called is not model else 1)).backward()
    found = {"loss": output.loss.detach()} | {name: weight.grad.clone() for name, weight in model.named_parameters()}
    if parallel:
        for name, value in found.items():
            if name == "loss" or called is model:
                dist.all_reduce(value)
    return found | {"logits": _all_tokens(output.logits.detach(), parallel)}


def run_masked(checkpoint: Path, parallel: bool = False) -> dict[str, Any]:
    """An encoder: logits."""
    model = AutoModelForMaskedLM.from_pretrained(checkpoint).eval()
    mask = LEFT_PADDED.flip(1)
    with ulysses(model) if parallel else nullcontext(), torch.no_grad():
        logits = model(TOKENS, mask, position_ids=POSITIONS, token_type_ids=TOKENS % 2).logits
    return {"encoder": {"logits": _all_tokens(logits, parallel)}}


def _all_tokens(part: torch.Tensor, parallel: bool) -> torch.Tensor:
    if not parallel:
        return part
    parts = [torch.empty_like(part) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, part.contiguous())
    return torch.cat(parts, 1)


def refusals(llama: Path, bert: Path) -> dict[str, str]:
    """What is refused, and the error."""
    causal = AutoModelForCausalLM.from_pretrained(llama)
    masked = AutoModelForMaskedLM.from_pretrained(bert)
    packed = torch.cat([POSITIONS[:, :7], POSITIONS[:, :5]], 1)

    def call(model: Any, *args: Any, **kwargs: Any) -> Callable[[], None]:
        def enter_and_call() -> None:
            with ulysses(model):
                model(*args, **kwargs)

        return enter_and_call

    attempts = {
        "odd length": call(causal, TOKENS[:, :11]),
        "packed": call(causal, TOKENS[:1], position_ids=packed),
        "mask": call(causal, TOKENS, attention_mask=torch.ones(4, 1, 12, 12, dtype=torch.bool)),
        "cache": call(causal, TOKENS, past_key_values=[1]),
        "part of the logits": call(causal, TOKENS, logits_to_keep=1),
        "weights": call(causal, TOKENS, output_attentions=True),
        "positions": call(masked, TOKENS),
        "labels": call(masked, TOKENS, position_ids=POSITIONS, labels=TOKENS),
        "dense": call(tiny_model("llama"), TOKENS),
        "two sequences": call(tiny_model("bart", "sparse_hopfield"), TOKENS),
        "one output": call(AutoModelForSequenceClassification.from_pretrained(llama), TOKENS),
        "own softmax": call(tiny_model("gptj", "sparse_hopfield"), TOKENS),
        "twice": lambda: call_twice(causal),
        "not a model": call(torch.nn.Linear(2, 2), TOKENS),
    }
    errors = {}
    for name, attempt in attempts.items():
        try:
            attempt()
            errors[name] = "nothing"
        except (ValueError, RuntimeError, TypeError) as error:
            errors[name] = str(error)
    return errors


def call_twice(model: Any) -> None:
    """Nest two contexts."""
    with ulysses(model), ulysses(model):
        pass


if __name__ == "__main__":
    dist.init_process_group("gloo")
    folder = Path(sys.argv[1])
    checkpoints = folder / "checkpoints"
    results = {name: run_causal(checkpoints / name, parallel=True) for name in ("llama", "one_key", "granite_swa")}
    results["bert"] = run_masked(checkpoints / "bert", parallel=True)
    results["refusals"] = refusals(checkpoints / "llama", checkpoints / "bert")
    torch.save(results, folder / f"{dist.get_rank()}.pt")
    dist.destroy_process_group()
