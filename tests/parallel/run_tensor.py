# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Loads checkpoints, runs, observes, trains and saves them: in one process, or sharded under `torchrun`."""

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType
from transformers import AutoConfig, AutoModelForCausalLM, TrainingArguments
from transformers.distributed import DistributedConfig

from hf_sparse_hopfield import to_sparse_hopfield
from hf_sparse_hopfield.diagnostics import sparsity_report
from hf_sparse_hopfield.training import SparseHopfieldTrainer, SparsityLoggingCallback


TOKENS = torch.randint(3, 90, (4, 12), generator=torch.Generator().manual_seed(0))
LEFT_PADDED = (torch.arange(12) >= torch.tensor([0, 3, 1, 5])[:, None]).long()
PADDED = {"input_ids": TOKENS, "attention_mask": LEFT_PADDED}
SETTINGS = {
    "learn_beta": True,
    "beta": [1.0 + 0.5 * head for head in range(8)],
    "alpha": [1.1 + 0.1 * head for head in range(8)],
}


def run(checkpoint: Path, output: Path, sizes: dict[str, int] | None = None, legacy: bool = False) -> dict[str, Any]:
    """What a model computes, and what it becomes by training. `sizes` are those of the mesh; `None` for one process."""
    model = _load(checkpoint, sizes, legacy).eval()
    # Before the first forward, after which FSDP2 shows whole weights for a while. Without foreach: plain and sharded weights
    # cannot share one call. Not Adam, which makes a large step of any rounding error in a gradient that should be zero.
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    results: dict[str, Any] = {}
    with torch.no_grad():
        results["logits"] = model(**PADDED).logits
        results["tokens"] = model.generate(**PADDED, max_new_tokens=5, do_sample=False)
    results["report"] = sparsity_report(model, [PADDED]).to_dict()["layers"]
    results["losses"] = _train(model, optimizer, sizes or {})
    with torch.no_grad():
        results["trained"] = model(**PADDED).logits
    model.save_pretrained(output)
    return results


def _load(checkpoint: Path, sizes: dict[str, int] | None, legacy: bool = False, **kwargs: Any) -> Any:
    if legacy:
        kwargs["tp_plan"] = "auto"
    elif sizes is not None:
        kwargs["distributed_config"] = DistributedConfig(**sizes)
    return AutoModelForCausalLM.from_pretrained(checkpoint, **kwargs)


def _train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, sizes: dict[str, int]) -> list[float]:
    """Three steps of two accumulated batches; the losses of all processes together."""
    model.train()
    replicas = sizes.get("fsdp_size", 1)
    replica = dist.get_rank() // sizes.get("tp_size", 1) if replicas > 1 else 0
    losses = []
    for _ in range(3):
        for batch in TOKENS.split(2):
            tokens = batch.chunk(replicas)[replica]
            loss = model(input_ids=tokens, labels=tokens).loss
            (loss / 2).backward()
            loss = loss.detach()
            if replicas > 1:
                dist.all_reduce(loss)
                loss /= dist.get_world_size()
            losses.append(loss.item())
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    return losses


def run_trainer(checkpoint: Path, output: Path, sizes: dict[str, int] | None = None) -> list[dict[str, float]]:
    """The log of a Trainer that trains, observes and saves a model."""
    arguments = TrainingArguments(
        output_dir=str(output),
        use_cpu=True,
        per_device_train_batch_size=4 // (sizes or {}).get("fsdp_size", 1),
        max_steps=3,
        optim="sgd",
        learning_rate=0.1,
        lr_scheduler_type="constant",
        logging_steps=1,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    samples = [{"input_ids": tokens, "labels": tokens} for tokens in TOKENS] * 3
    trainer = SparseHopfieldTrainer(model=_load(checkpoint, sizes), args=arguments, train_dataset=samples)
    trainer.add_callback(SparsityLoggingCallback(every=3, trainer=trainer))
    trainer.train()
    trainer.save_model()
    unequal = ("train_runtime", "train_samples_per_second", "train_steps_per_second", "total_flos")
    return [{k: v for k, v in entry.items() if k not in unequal} for entry in trainer.state.log_history]


def run_late(dense: Path, sizes: dict[str, int] | None = None) -> dict[str, Any]:
    """A dense checkpoint that becomes sparse while it is loaded, and one that does so afterwards."""
    config = AutoConfig.from_pretrained(str(dense))
    config.sparse_hopfield = SETTINGS
    model = _load(dense, sizes, config=config, attn_implementation="sparse_hopfield")
    results = {"while loaded": model(**PADDED).logits.detach()}
    try:
        model = to_sparse_hopfield(_load(dense, sizes), SETTINGS)
        output = model(**PADDED, labels=TOKENS)
        output.loss.backward()
        results["afterwards"] = output.logits.detach()
        results["gradient"] = model.model.layers[0].self_attn.sparse_hopfield.log_beta.grad
    except RuntimeError as error:
        results["afterwards"] = str(error)
    return results


def _let_parallelism_in() -> None:
    """accelerate accepts a `ParallelismConfig` on accelerators only; torch can do the same on CPUs."""
    original = AcceleratorState.__init__

    def __init__(self, *args, **kwargs):
        original(self, *args, **kwargs)
        if self.distributed_type == DistributedType.MULTI_CPU:
            self.distributed_type = DistributedType.MULTI_GPU

    AcceleratorState.__init__ = __init__


def main(folder: Path) -> None:
    """Do what `cases.json` says: for each result a name and the arguments of a function above."""
    _let_parallelism_in()
    for name, (function, arguments) in json.loads((folder / "cases.json").read_text()).items():
        try:
            result = globals()[function](**arguments)
        except RuntimeError as error:
            result = error
        torch.save(result, folder / f"{name}.{dist.get_rank()}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
