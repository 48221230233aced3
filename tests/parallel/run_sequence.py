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


def shared(model: Any, batch: dict[str, Any], parallel: bool) -> Any:
    """The context of a forward and a backward pass, which yields what to call the model with."""
    return ulysses(model, batch) if parallel else nullcontext(batch)


def run_causal(checkpoint: Path, parallel: bool = False) -> dict[str, Any]:
    """Logits, loss and gradients with each kind of padding and with gradient checkpointing; then the sparsity report."""
    model = AutoModelForCausalLM.from_pretrained(checkpoint)
    results: dict[str, Any] = {name: _run_once(model, mask, parallel) for name, mask in PADDINGS.items()}
    model.gradient_checkpointing_enable()
    results["checkpointing"] = _run_once(model, LEFT_PADDED, parallel)
    results["data parallel"] = _run_once(model, LEFT_PADDED, parallel, wrapped=True)
    model.eval()
    with shared(model, {"input_ids": TOKENS, "attention_mask": LEFT_PADDED}, parallel) as part:
        results["report"] = sparsity_report(model, [part]).to_dict()["layers"]
    with torch.no_grad():
        results["outside"] = {"logits": model(input_ids=TOKENS).logits}
    return results


def _run_once(model: Any, mask: torch.Tensor | None, parallel: bool, wrapped: bool = False) -> dict[str, torch.Tensor]:
    """Forward and backward; the logits of all processes, and the sum of their losses and gradients."""
    model.train()
    model.zero_grad()
    labels = TOKENS if mask is None else TOKENS.masked_fill(mask == 0, -100)
    called = DistributedDataParallel(model) if parallel and wrapped else model
    with shared(called, {"input_ids": TOKENS, "attention_mask": mask, "labels": labels}, parallel) as part:
        output = called(**part)
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
    batch = {"input_ids": TOKENS, "attention_mask": LEFT_PADDED.flip(1), "token_type_ids": TOKENS % 2}
    with shared(model, {**batch, "position_ids": POSITIONS.expand(4, -1)}, parallel) as part, torch.no_grad():
        logits = model(**part).logits
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

    def call(model: Any, tokens: torch.Tensor = TOKENS, **others: Any) -> Callable[[], None]:
        def enter_and_call() -> None:
            with ulysses(model, {"input_ids": tokens, **others}) as part:
                model(**part)

        return enter_and_call

    def twice() -> None:
        with ulysses(causal, {"input_ids": TOKENS}), ulysses(causal, {"input_ids": TOKENS}):
            pass

    def late_backward() -> None:
        causal.train()
        causal.gradient_checkpointing_enable()
        with ulysses(causal, {"input_ids": TOKENS, "labels": TOKENS}) as part:
            loss = causal(**part).loss
        loss.backward()

    def with_cache() -> None:
        cache = causal.eval()(input_ids=TOKENS, use_cache=True).past_key_values
        with ulysses(causal, {"input_ids": TOKENS}) as part:
            causal(**part, past_key_values=cache)

    attempts = {
        "late backward": late_backward,
        "odd length": call(causal, TOKENS[:, :11]),
        "packed": call(causal, TOKENS[:1], position_ids=packed),
        "mask": call(causal, attention_mask=torch.ones(4, 1, 12, 12, dtype=torch.bool)),
        "cache": with_cache,
        "weights": call(causal, output_attentions=True),
        "positions": call(masked),
        "labels": call(masked, position_ids=POSITIONS.expand(4, -1), labels=TOKENS),
        "dense": call(tiny_model("llama")),
        "two sequences": call(tiny_model("bart", "sparse_hopfield")),
        "one output": call(AutoModelForSequenceClassification.from_pretrained(llama)),
        "own softmax": call(tiny_model("gptj", "sparse_hopfield")),
        "heads": call(
            tiny_model("llama", "sparse_hopfield", hidden_size=24, num_attention_heads=3, num_key_value_heads=3)
        ),
        "twice": twice,
        "not a model": call(torch.nn.Linear(2, 2)),
    }
    errors = {}
    for name, attempt in attempts.items():
        try:
            attempt()
            errors[name] = "nothing"
        except (ValueError, RuntimeError, TypeError) as error:
            errors[name] = str(error)
    return errors


if __name__ == "__main__":
    dist.init_process_group("gloo")
    folder = Path(sys.argv[1])
    checkpoints = folder / "checkpoints"
    results = {name: run_causal(checkpoints / name, parallel=True) for name in ("llama", "one_key", "granite_swa")}
    results["bert"] = run_masked(checkpoints / "bert", parallel=True)
    results["refusals"] = refusals(checkpoints / "llama", checkpoints / "bert")
    torch.save(results, folder / f"{dist.get_rank()}.pt")
    dist.destroy_process_group()
