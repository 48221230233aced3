# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`hf-sparse-hopfield demo`: the whole way on embedded data, nothing downloaded."""

import copy
import pathlib
import tempfile
import time
from typing import Any

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from torch.utils.data import Dataset
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    PrinterCallback,
    ProgressCallback,
    Trainer,
    TrainingArguments,
    set_seed,
)

from ..calibration.calibration import calibrate
from ..diagnostics import plot_associations, plot_sparsity, record_associations, sparsity_report
from ..extras import require
from ..files import new_directory
from ..integration.binding import has_bound_attention
from ..integration.convert import to_dense, to_sparse_hopfield
from ..layers import HopfieldMemory
from .text import TEXT


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
ALPHA = 2.0
TARGET_SUPPORT = 0.1
REFINE_STEPS = 32
LINE, LINES = 8, 3


def digit_patterns() -> torch.Tensor:
    """The digits as patterns of -1 and 1, shape `(10, 35)`."""
    rows = torch.tensor(DIGITS)[..., None]
    return ((rows >> torch.arange(4, -1, -1)) & 1).flatten(1) * 2.0 - 1


def recall_digits(path: pathlib.Path, seed: int) -> list[tuple[str, float, float, float]]:
    """Recall the digits from noise with a sparse and a dense memory, and draw what came back."""
    figure_class = require("matplotlib.figure", "cli").Figure
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
    figure = figure_class(figsize=(8, 1.2 * len(images)), layout="constrained")
    for line, (name, batch) in zip(figure.subplots(len(images), 10), images, strict=True):
        for axis, image in zip(line, batch, strict=True):
            axis.imshow(image.reshape(7, 5).numpy(), cmap="gray_r", vmin=-1.5, vmax=1.5)
            axis.set(xticks=[], yticks=[])
        line[0].set_ylabel(name.replace(", ", "\n"), rotation=0, ha="right", va="center")
    figure.savefig(path, dpi=120)
    return rows


class Echoes(Dataset):
    """
    Lines of the text, each followed by its echo, which is what is to be foretold: to know it, look at the line.

    Args:
        words (`torch.Tensor` of shape `(words,)`): The text, one number a word.
        count (`int`): How many samples, each of `LINES` lines and their echoes.
        seed (`int`): Chooses the lines.
    """

    def __init__(self, words: torch.Tensor, count: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        starts = torch.randint(0, len(words) - LINE, (count, LINES, 1), generator=generator)
        lines = words[starts + torch.arange(LINE)]
        self.input_ids = torch.stack([lines, lines], 2).flatten(1)
        self.labels = torch.stack([torch.full_like(lines, -100), lines], 2).flatten(1)

    def __len__(self) -> int:
        return len(self.input_ids)

    def __getitem__(self, index: int | slice) -> dict[str, torch.Tensor]:
        return {"input_ids": self.input_ids[index], "labels": self.labels[index]}

    def batches(self) -> list[dict[str, torch.Tensor]]:
        """All samples, 16 at a time."""
        return [self[start : start + 16] for start in range(0, len(self), 16)]


def make_tokenizer() -> PreTrainedTokenizerFast:
    """One token a word of the text."""
    normalizer, splitter = normalizers.Lowercase(), pre_tokenizers.Whitespace()
    pieces = splitter.pre_tokenize_str(normalizer.normalize_str(TEXT))
    vocabulary = ["<unk>", *sorted({word for word, _ in pieces})]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token="<unk>"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, splitter
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>")


def train(model: PreTrainedModel, data: Echoes, steps: int, learning_rate: float, seed: int) -> float:
    """Train with Trainer; returns the seconds it took."""
    with tempfile.TemporaryDirectory() as scratch:
        arguments = TrainingArguments(
            output_dir=scratch,
            max_steps=steps,
            per_device_train_batch_size=16,
            learning_rate=learning_rate,
            warmup_steps=steps // 10,
            logging_strategy="no",
            save_strategy="no",
            report_to="none",
            seed=seed,
            use_cpu=True,
        )
        trainer = Trainer(model, arguments, train_dataset=data)
        trainer.remove_callback(PrinterCallback)  # a dictionary at the end, in the middle of our tables
        trainer.remove_callback(ProgressCallback)
        trainer.add_callback(_QuietProgress())
        start = time.perf_counter()
        trainer.train()
        return time.perf_counter() - start


class _QuietProgress(ProgressCallback):
    """The progress bar of Trainer, without what it logs."""

    def on_log(self, *args, **kwargs) -> None:
        pass


@torch.no_grad()
def score(model: PreTrainedModel, data: Echoes) -> tuple[float, float]:
    """Mean loss in nats, and share of words foretold right."""
    model.eval()
    outputs = model(**data[:])
    labels = data.labels[:, 1:]
    right = (outputs.logits[:, :-1].argmax(-1) == labels)[labels != -100].float().mean()
    return outputs.loss.item(), right.item()


def run_demo(
    output_dir: str, steps: int = 150, seed: int = 0, overwrite: bool = False, quiet: bool = False
) -> dict[str, Any]:
    """
    Recall digits from a memory; train a small dense language model, make it sparse, fine-tune, save, reload; show it all.

    Args:
        output_dir (`str`): Where the pictures and the sparse model go.
        steps (`int`, *optional*, defaults to 150): Training steps of the dense model; a quarter of it for fine-tuning.
        seed (`int`, *optional*, defaults to 0): Seed of everything random.
        overwrite (`bool`, *optional*, defaults to `False`): Replace an `output_dir` that exists already.
        quiet (`bool`, *optional*, defaults to `False`): Show nothing.

    Returns:
        `dict`: What the tables show: `digits` and `models`, a list of rows each; and `equal_after_reloading`.

    Example:

    ```python
    >>> from hf_sparse_hopfield.demo import run_demo

    >>> run_demo("demo", steps=20)  # doctest: +SKIP
    ```
    """
    if steps < 5:
        raise ValueError(f"steps must be at least 5, got {steps}.")
    console = require("rich.console", "cli").Console(quiet=quiet)
    with new_directory(output_dir, overwrite, mark="model/config.json") as directory:
        console.rule("1. A memory of ten digits, recalled from noise")
        digits = _show_digits(console, directory, seed)
        console.rule("2. A small dense language model, made sparse")
        model, data, models = _show_conversion(console, directory, steps, seed)
        console.rule("3. Saved and reloaded")
        equal = _show_reload(console, directory, model, data)
    for name in ("digits.png", "heads.png", "associations.png", "model"):
        console.print(f"written: {pathlib.Path(output_dir, name)}")
    return {"output": output_dir, "digits": digits, "models": models, "equal_after_reloading": equal}


def _show_digits(console: Any, directory: pathlib.Path, seed: int) -> list[dict[str, Any]]:
    table = require("rich.table", "cli").Table("memory", "mean error", "recalled exactly", "patterns used")
    recalled = recall_digits(directory / "digits.png", seed)
    for name, error, exact, used in recalled:
        table.add_row(name, f"{error:.3f}", f"{exact:.0%}", f"{used:.1f} of 10")
    console.print(table)
    return [dict(zip(("memory", "error", "exact", "used"), row, strict=True)) for row in recalled]


def _show_conversion(
    console: Any, directory: pathlib.Path, steps: int, seed: int
) -> tuple[PreTrainedModel, Echoes, list[dict[str, Any]]]:
    set_seed(seed)
    tokenizer = make_tokenizer()
    words = torch.tensor(tokenizer(TEXT)["input_ids"])
    data, new_data = Echoes(words, 16 * steps, seed), Echoes(words, 64, seed + 1)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=2 * LINE * LINES,
        bos_token_id=None,
        eos_token_id=None,
    )
    model = LlamaForCausalLM(config)
    table = require("rich.table", "cli").Table("model", "loss on new lines", "words right", "keys used", "seconds")

    models: list[dict[str, Any]] = []

    def add(name: str, seconds: float | None) -> None:
        loss, right = score(model, new_data)
        share = sparsity_report(model, new_data.batches()).share if has_bound_attention(model) else 1.0
        models.append({"model": name, "loss": loss, "right": right, "share": share, "seconds": seconds})
        used = f"{share:.1%}" if has_bound_attention(model) else "all"
        table.add_row(name, f"{loss:.4f}", f"{right:.1%}", used, "" if seconds is None else f"{seconds:.0f}")

    def fine_tune() -> float:
        return train(model, data, max(1, steps // 4), 1e-3, seed)

    add("dense (softmax)", train(model, data, steps, 4e-3, seed))
    dense = copy.deepcopy(model)
    add("and trained on", fine_tune())
    model = to_sparse_hopfield(dense, {"alpha": ALPHA})
    add("sparse (sparsemax)", None)
    model, report = calibrate(
        to_dense(model),
        data.batches()[:REFINE_STEPS],
        alpha=ALPHA,
        objective="support",
        target_support=TARGET_SUPPORT,
        search_batches=4,
        refine_steps=REFINE_STEPS,
        learning_rate=0.05,
        progress=console.is_terminal,
    )
    add("beta calibrated", report.seconds)
    add("and trained on", fine_tune())
    console.print(table)
    plot_sparsity(sparsity_report(model, new_data.batches()), directory / "heads.png")
    sample = new_data.input_ids[0, : 2 * LINE]
    name, weights = list(record_associations(model, {"input_ids": sample[None]}).items())[-1]
    labels = tokenizer.convert_ids_to_tokens(sample.tolist())
    plot_associations(weights[0], directory / "associations.png", query_labels=labels)
    betas = ", ".join(f"{beta:.2f}" for beta in report.layers[name]["beta"])
    console.print(f"beta of the four heads of {name}: {betas}")
    tokenizer.save_pretrained(directory / "model")
    return model, new_data, models


def _show_reload(console: Any, directory: pathlib.Path, model: PreTrainedModel, data: Echoes) -> bool:
    model.save_pretrained(directory / "model")
    reloaded = AutoModelForCausalLM.from_pretrained(directory / "model").eval()
    inputs = {"input_ids": data.input_ids[:4]}
    with torch.no_grad():
        same = torch.equal(reloaded(**inputs).logits, model.eval()(**inputs).logits)
    console.print(f"{type(reloaded).__name__}: equal outputs after reloading: {same}")
    again = to_dense(reloaded)
    console.print(f"{type(again).__name__}: the same weights with softmax have a loss of {score(again, data)[0]:.4f}")
    return same
