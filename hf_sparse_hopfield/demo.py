# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`hf-sparse-hopfield demo`: the main job on embedded data, nothing downloaded."""

import pathlib
import tempfile
import time

import torch
from torch import nn
from transformers import Trainer, TrainingArguments, set_seed

from .extras import require
from .layers import HopfieldMemory, SparseHopfieldPooling


# Ten digits of 5 x 7 pixels, one row of pixels a number.
DIGITS = (
    (14, 17, 19, 21, 25, 17, 14),
    (4, 12, 4, 4, 4, 4, 14),
    (14, 17, 1, 2, 4, 8, 31),
    (31, 2, 4, 2, 1, 17, 14),
    (2, 6, 10, 18, 31, 2, 2),
    (31, 16, 30, 1, 1, 17, 14),
    (6, 8, 16, 30, 17, 17, 14),
    (31, 1, 2, 4, 8, 8, 8),
    (14, 17, 17, 14, 17, 17, 14),
    (14, 17, 17, 15, 1, 2, 12),
)
BETA = 0.1
BITS = 6
BAG_SIZE = 40


def digit_patterns() -> torch.Tensor:
    """The digits as patterns of -1 and 1, shape `(10, 35)`."""
    rows = torch.tensor(DIGITS)[..., None]
    return ((rows >> torch.arange(4, -1, -1)) & 1).flatten(1) * 2.0 - 1


def recall_digits(path: pathlib.Path, seed: int) -> list[tuple[str, float, float, float]]:
    """Recall the digits from noise with a sparse and a dense memory, and draw what came back."""
    pyplot = require("matplotlib.pyplot", "cli")
    patterns = digit_patterns()
    generator = torch.Generator().manual_seed(seed)
    noisy = patterns + 0.8 * torch.randn(patterns.shape, generator=generator)
    rows, images = [], [("stored", patterns), ("query", noisy)]
    for name, alpha in (("sparse, alpha = 2", 2.0), ("entmax15, alpha = 1.5", 1.5), ("dense, alpha = 1", 1.0)):
        trace = HopfieldMemory(patterns, alpha=alpha, beta=BETA).retrieve(noisy, steps=3, return_trace=True)
        error = (trace.output - patterns).norm(dim=-1)
        used = (trace.weights > 0).sum(-1).float().mean().item()
        rows.append((name, error.mean().item(), (error < 1e-3).float().mean().item(), used))
        images.append((name, trace.output))
    figure, axes = pyplot.subplots(len(images), 10, figsize=(8, 1.2 * len(images)))
    for line, (name, batch) in zip(axes, images, strict=True):
        for axis, image in zip(line, batch, strict=True):
            axis.imshow(image.reshape(7, 5), cmap="gray_r", vmin=-1.5, vmax=1.5)
            axis.set(xticks=[], yticks=[])
        line[0].set_ylabel(name.replace(", ", "\n"), rotation=0, ha="right", va="center")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return rows


class BagClassifier(nn.Module):
    """One pooling layer and one linear layer: does a bag hold a signal pattern?"""

    def __init__(self, alpha: float):
        super().__init__()
        self.embed = nn.Linear(BITS, 32)
        # a small scaling starts with all patterns in the support, where each gets gradient; training sharpens it
        self.pool = SparseHopfieldPooling(32, num_heads=4, alpha=alpha, scaling=0.03)
        self.head = nn.Linear(32, 2)

    def forward(self, bags: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        logits = self.head(self.pool(self.embed(bags)))
        outputs = {"logits": logits}
        if labels is not None:
            outputs = {"loss": nn.functional.cross_entropy(logits, labels), **outputs}
        return outputs

    def support_size(self, bags: torch.Tensor) -> float:
        """Mean number of patterns of a bag that get weight."""
        with torch.no_grad():
            weights = self.pool.get_association_matrix(self.embed(bags))
        return (weights > 0).sum(-1).float().mean().item()


def make_bags(count: int, generator: torch.Generator) -> list[dict[str, torch.Tensor]]:
    """Bags of random bits; half of them hold one of two signal patterns, which no other bag does."""
    signals = torch.tensor([[1, 1, 0, 0, 1, 0], [0, 1, 1, 0, 0, 1]]) * 2.0 - 1
    bags = torch.randint(0, 2, (count, BAG_SIZE, BITS), generator=generator) * 2.0 - 1
    is_signal = (bags[:, :, None] == signals).all(-1).any(-1)
    bags[is_signal] = 1.0  # one pattern that is no signal
    labels = torch.arange(count) % 2
    places = torch.randint(0, BAG_SIZE, (count,), generator=generator)
    kinds = torch.randint(0, 2, (count,), generator=generator)
    positive = labels.bool()
    bags[positive, places[positive]] = signals[kinds[positive]]
    return [{"bags": bag, "labels": label} for bag, label in zip(bags, labels, strict=True)]


def train_classifier(alpha: float, epochs: int, seed: int, scratch: str) -> tuple[BagClassifier, float, float]:
    """Train with Trainer; returns the model, its accuracy on new bags and the seconds it took."""
    set_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    train, test = make_bags(800, generator), make_bags(400, generator)
    arguments = TrainingArguments(
        output_dir=scratch,
        num_train_epochs=epochs,
        per_device_train_batch_size=32,
        per_device_eval_batch_size=400,
        learning_rate=3e-3,
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        seed=seed,
        use_cpu=True,
    )
    trainer = Trainer(BagClassifier(alpha), arguments, train_dataset=train, eval_dataset=test)
    start = time.perf_counter()
    trainer.train()
    seconds = time.perf_counter() - start
    prediction = trainer.predict(test)
    accuracy = float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())
    return trainer.model, accuracy, seconds


def run_demo(output_dir: str, epochs: int = 30, seed: int = 0, overwrite: bool = False) -> None:
    """
    Store and recall patterns, then train sparse and dense pooling; print tables, write pictures.

    Args:
        output_dir (`str`): Where the pictures and the sparse model's weights go.
        epochs (`int`, *optional*, defaults to 30): Epochs of training.
        seed (`int`, *optional*, defaults to 0): Seed of everything random.
        overwrite (`bool`, *optional*, defaults to `False`): Write into an `output_dir` that exists already.

    Example:

    ```python
    >>> from hf_sparse_hopfield.demo import run_demo

    >>> run_demo("demo", epochs=2)  # doctest: +SKIP
    ```
    """
    if epochs < 1:
        raise ValueError(f"epochs must be at least 1, got {epochs}.")
    table_class = require("rich.table", "cli").Table
    console = require("rich.console", "cli").Console()
    safetensors = require("safetensors.torch", "cli")
    directory = pathlib.Path(output_dir)
    if directory.exists() and not overwrite:
        raise FileExistsError(f"output_dir {output_dir!r} exists already: choose another or add --overwrite.")
    directory.mkdir(parents=True, exist_ok=True)

    console.rule("1. A memory of ten digits, recalled from noise")
    table = table_class("memory", "mean error", "recalled exactly", "patterns used")
    for name, error, exact, used in recall_digits(directory / "digits.png", seed):
        table.add_row(name, f"{error:.3f}", f"{exact:.0%}", f"{used:.1f} of 10")
    console.print(table)

    console.rule("2. One signal pattern in a bag of 40, found by pooling")
    table = table_class("pooling", "accuracy on new bags", "patterns used", "seconds")
    with tempfile.TemporaryDirectory() as scratch:
        for name, alpha in (("sparse", 2.0), ("dense", 1.0)):
            model, accuracy, seconds = train_classifier(alpha, epochs, seed, scratch)
            bags = torch.stack([b["bags"] for b in make_bags(100, torch.Generator().manual_seed(seed + 1))])
            used = model.support_size(bags)
            table.add_row(name, f"{accuracy:.1%}", f"{used:.1f} of {BAG_SIZE}", f"{seconds:.0f}")
            if alpha == 2.0:
                sparse = model
    console.print(table)

    console.rule("3. Saved and reloaded")
    weights = directory / "bag_classifier.safetensors"
    safetensors.save_file(sparse.state_dict(), weights)
    reloaded = BagClassifier(2.0).eval()
    reloaded.load_state_dict(safetensors.load_file(weights))
    same = torch.equal(reloaded(bags)["logits"], sparse.eval()(bags)["logits"])
    console.print(f"{weights}: equal outputs after reloading: {same}")
    console.print(f"pictures: {directory / 'digits.png'}")
