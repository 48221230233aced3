# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Multiple-instance learning of bit patterns: bag size, bag sparsity, convergence, and other sparsity in the test.

    python examples/paper/bit_pattern.py --output_dir OUT            # 14 cells x 6 models, and 4 on the temperature; 10 seeds
    python examples/paper/bit_pattern.py --quick --output_dir OUT    # a small version, in a minute

An instance is one of the 15 patterns of four bits that are not all zero. Four of them, drawn anew for every seed, are
signals: a positive bag has some of them, a negative bag none. The ten seeds of a cell are trained as one stack of models
(stacking.py), and bags are multisets of 15 kinds of instances (counted_bags.py). As a check, the library's own model gets the
weights of the first seed and the whole test bags; the difference of its logits is recorded.
"""

import time
from dataclasses import dataclass, field
from typing import Any

import torch
from bit_pattern_report import POSITIVES, SHARES, SIZES, SPARSITY_SIZE, report
from counted_bags import bag_logits
from harness import Cell, ExperimentArguments, parse, run
from stacking import stack, unstack
from torch import nn

from hf_sparse_hopfield.models import (
    SparseHopfieldForMultipleInstanceClassification,
    SparseHopfieldMultipleInstanceConfig,
)


BITS, SIGNALS = 4, 4
KINDS = 2**BITS - 1
TRAIN_BAGS, TEST_BAGS = 800, 200
MODELS = {
    "S pooling": {"aggregation": "pooling", "alpha": 2.0},
    "D pooling": {"aggregation": "pooling", "alpha": 1.0},
    "S Hopfield": {"aggregation": "hopfield", "alpha": 2.0},
    "D Hopfield": {"aggregation": "hopfield", "alpha": 1.0},
    "attention": {"aggregation": "attention", "alpha": 1.0},
    "gated attention": {"aggregation": "gated_attention", "alpha": 1.0},
}
# Given by the paper: scaling 0.25, 8 heads of size 8, dropout 0.5, AdamW 1e-3, batches of 128, 150 epochs, the last model.
HEADS = {"num_heads": 8, "head_size": 8, "bag_dropout": 0.5}
# Left open by the paper, see PROTOCOL.
STATES = 16
PATTERNS = {"scaling": 0.25, "update_steps": 0}
BATCH, EPOCHS, LEARNING_RATE = 128, 150, 1e-3
# Does dense pooling fail because of the temperature? Model, scaling, factor on the epochs.
TEMPERATURES = (("D pooling", 1.0, 1), ("D pooling", 4.0, 1), ("D pooling", 0.25, 4), ("S pooling", 1.0, 1))


@dataclass
class BitPatternArguments(ExperimentArguments):
    """Arguments of the experiment."""

    epochs: int | None = field(default=None, metadata={"help": "Number of epochs (default: 150, as in the paper)."})


def bit_patterns() -> torch.Tensor:
    """All kinds of instances, `(15, 4)`, bits as -1 and 1."""
    bits = torch.arange(1, KINDS + 1)[:, None] >> torch.arange(BITS) & 1
    return 2.0 * bits - 1.0


def make_bags(seed: int, count: int, size: int, positives: int, part: str) -> tuple[torch.Tensor, torch.Tensor]:
    """
    Make bags, every second one positive.

    Args:
        seed (`int`): Determines the signals, and with `part` the bags.
        count (`int`): Number of bags.
        size (`int`): Instances in a bag.
        positives (`int`): Signals among the instances of a positive bag.
        part (`str`): `"train"` or `"test"`.

    Returns:
        `tuple[torch.Tensor, torch.Tensor]`: The pattern number of each instance `(count, size)`, and labels `(count,)`.
    """
    order = torch.randperm(KINDS, generator=torch.Generator().manual_seed(seed))
    signals, background = order[:SIGNALS], order[SIGNALS:]
    generator = torch.Generator().manual_seed(1_000_003 * (seed + 1) + {"train": 0, "test": 1}[part])
    bags = background[torch.randint(len(background), (count, size), generator=generator)]
    labels = torch.arange(count) % 2
    implanted = signals[torch.randint(SIGNALS, (int(labels.sum()), positives), generator=generator)]
    bags[labels == 1, :positives] = implanted  # the models do not depend on the order within a bag
    return bags, labels


def count_kinds(bags: torch.Tensor) -> torch.Tensor:
    """Count each pattern in each bag, `(..., 15)`."""
    return nn.functional.one_hot(bags, KINDS).sum(-2).float()


def make_config(model: str, scaling: float | None = None) -> SparseHopfieldMultipleInstanceConfig:
    """Make the configuration of one of the six models. Hopfield models have the paper's scaling unless another is given."""
    settings = {"input_size": BITS, **HEADS, **MODELS[model]}
    if "attention" not in model:
        settings |= PATTERNS if scaling is None else {**PATTERNS, "scaling": scaling}
    if "pooling" in model:
        settings["quantity"] = STATES
    return SparseHopfieldMultipleInstanceConfig(**settings)


def train(
    model: str, bag_size: int, positives: int, seeds: int, epochs: int, scaling: float | None = None
) -> dict[str, Any]:
    """
    Train one model with all seeds.

    Args:
        model (`str`): One of `MODELS`.
        bag_size (`int`): Instances in a bag.
        positives (`int`): Signals in a positive bag.
        seeds (`int`): Number of seeds.
        epochs (`int`): Passes over the training bags.
        scaling (`float`, *optional*): Inverse temperature of the Hopfield models; defaults to the paper's 0.25.

    Returns:
        `dict`: `accuracy` on the test bags and on test bags with other numbers of signals (`generalization`), per seed;
        `curve` (epoch, loss and test accuracy, means over seeds); `difference` between the logits of the stack and of the
        library's own model, without dropout; `cpu_seconds` of training.
    """
    config, patterns = make_config(model, scaling), bit_patterns()
    models = []
    for seed in range(seeds):
        torch.manual_seed(seed)
        models.append(SparseHopfieldForMultipleInstanceClassification(config))
    stacked = stack(models)
    data = {
        part: [make_bags(seed, count, bag_size, positives, part) for seed in range(seeds)]
        for part, count in (("train", TRAIN_BAGS), ("test", TEST_BAGS))
    }
    counts = {part: torch.stack([count_kinds(bags) for bags, _ in found]) for part, found in data.items()}
    labels = {part: torch.stack([label for _, label in found]) for part, found in data.items()}
    optimizer = torch.optim.AdamW(stacked.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.999))
    torch.manual_seed(seeds)
    curve, began = [], time.process_time()
    for epoch in range(1, epochs + 1):
        stacked.train()
        total = 0.0
        order = torch.stack([torch.randperm(TRAIN_BAGS) for _ in range(seeds)])
        for batch in order.split(BATCH, 1):
            bags = counts["train"].gather(1, batch[..., None].expand(-1, -1, KINDS))
            loss = _loss(bag_logits(stacked, patterns, bags), labels["train"].gather(1, batch))
            optimizer.zero_grad(set_to_none=True)
            (seeds * loss).backward()  # so that each seed gets the gradient of its own mean
            optimizer.step()
            total += loss.item() * batch.shape[1]
        if epoch % 5 == 0 or epoch == epochs:
            accuracy = _accuracy(stacked, patterns, counts["test"], labels["test"])
            curve.append([epoch, total / TRAIN_BAGS, sum(accuracy) / seeds])
    generalization = {}
    if "pooling" in model and bag_size == SPARSITY_SIZE:
        for other in POSITIVES:
            tests = [make_bags(seed, TEST_BAGS, bag_size, other, "test") for seed in range(seeds)]
            other_counts = torch.stack([count_kinds(bags) for bags, _ in tests])
            generalization[str(other)] = _accuracy(stacked, patterns, other_counts, labels["test"])
    return {
        "accuracy": accuracy,
        "curve": curve,
        "generalization": generalization,
        "cpu_seconds": time.process_time() - began,
        "difference": _difference(stacked, patterns, data["test"][0][0][:50], counts["test"][:, :50]),
    }


def _loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


@torch.no_grad()
def _accuracy(stacked: nn.Module, patterns: torch.Tensor, counts: torch.Tensor, labels: torch.Tensor) -> list[float]:
    """Accuracy in percent, per seed."""
    stacked.eval()
    return (100.0 * (bag_logits(stacked, patterns, counts).argmax(-1) == labels).float().mean(1)).tolist()


@torch.no_grad()
def _difference(stacked: nn.Module, patterns: torch.Tensor, bags: torch.Tensor, counts: torch.Tensor) -> float:
    """Largest difference between the logits of the library's model on whole bags and of the stack on counts, first seed."""
    stacked.eval()
    own = unstack(stacked, 0).eval()(patterns[bags]).logits
    return float((own - bag_logits(stacked, patterns, counts)[0]).abs().max())


def make_cells(arguments: BitPatternArguments) -> dict[str, Cell]:
    """Make the cells: one model after the other, sparse pooling first."""
    sizes, shares, epochs = SIZES, SHARES, arguments.epochs or EPOCHS
    if arguments.quick:
        sizes, shares, epochs = (20, 50), (0.1,), arguments.epochs or 30
    seeds = len(arguments.seed_range(10, 2))
    fixed = {"heads": HEADS, "patterns": PATTERNS, "states": STATES, "batch": BATCH, "learning_rate": LEARNING_RATE}
    fixed |= {"train_bags": TRAIN_BAGS, "test_bags": TEST_BAGS}
    cells = {}
    for model in MODELS:
        name = model.replace(" ", "_")
        for size in sizes:
            settings = {"model": model, "bag_size": size, "positives": 1, "seeds": seeds, "epochs": epochs}
            cells[f"size/{size}/{name}"] = Cell(train, settings, fixed=fixed)
        for share in shares:
            settings = {"model": model, "bag_size": SPARSITY_SIZE, "positives": round(share * SPARSITY_SIZE)}
            cells[f"sparsity/{share}/{name}"] = Cell(
                train, {**settings, "seeds": seeds, "epochs": epochs}, fixed=fixed
            )
    for model, scaling, times in TEMPERATURES[:1] if arguments.quick else TEMPERATURES:
        settings = {"model": model, "bag_size": sizes[-1], "positives": 1, "seeds": seeds, "epochs": times * epochs}
        name = f"temperature/{model.replace(' ', '_')}/scaling{scaling:g}" + (f"_epochs{times}x" if times > 1 else "")
        cells[name] = Cell(train, {**settings, "scaling": scaling}, fixed=fixed)
    return cells


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Run the experiment. Returns its record."""
    arguments = parse(BitPatternArguments, argv)
    return run("bit_pattern", arguments, make_cells(arguments), report)


if __name__ == "__main__":
    main()
