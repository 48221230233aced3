# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The demo: memory, training, conversion, calibration, fine-tuning, saving and reloading."""

import copy
import pathlib
import tempfile
import time
from typing import Any

import torch
from tqdm.std import tqdm
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PrinterCallback,
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
from ..progress import progress_bar
from ..training.progress import TrainerProgress
from .digits import BETA, recall_digits
from .echoes import LINE, LINES, Echoes, make_tokenizer
from .text import TEXT


ALPHA = 2.0
TARGET_SUPPORT = 0.1
REFINE_STEPS = 32


def run_demo(
    output_dir: str,
    steps: int = 150,
    seed: int = 0,
    overwrite: bool = False,
    quiet: bool = False,
    progress: bool = True,
) -> dict[str, Any]:
    """
    Recall digits from a memory; train a small dense language model, make it sparse, fine-tune it, save and reload it; and
    show the results.

    Args:
        output_dir (`str`): Directory for the plots and the sparse model.
        steps (`int`, *optional*, defaults to 150): Training steps of the dense model; fine-tuning takes a quarter of them.
        seed (`int`, *optional*, defaults to 0): The random seed.
        overwrite (`bool`, *optional*, defaults to `False`): Replace an existing `output_dir`.
        quiet (`bool`, *optional*, defaults to `False`): Print nothing.
        progress (`bool`, *optional*, defaults to `True`): Show progress, on stderr.

    Returns:
        `dict`: The rows of the two tables, `digits` and `models`, and `equal_after_reloading`.

    Example:

    ```python
    >>> from hf_sparse_hopfield.demo import run_demo

    >>> run_demo("demo", steps=20)  # doctest: +SKIP
    ```
    """
    if steps < 5:
        raise ValueError(f"steps must be at least 5, got {steps}.")
    console = require("rich.console", "cli").Console(quiet=quiet)
    with new_directory(output_dir, overwrite) as directory:
        console.rule("1. A memory of ten digits, recalled from noise")
        digits = _show_digits(console, directory, seed)
        console.rule("2. A small dense language model becomes sparse")
        model, data, models = _show_conversion(console, directory, steps, seed, progress)
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
    console.print(
        f"All three with beta = {BETA}, and with the same noise. A larger beta sharpens softmax, too: with beta = 1, the dense memory "
        "recalls as many digits as the sparse one, but it still uses all ten patterns."
    )
    return [dict(zip(("memory", "error", "exact", "used"), row, strict=True)) for row in recalled]


def _show_conversion(
    console: Any, directory: pathlib.Path, steps: int, seed: int, progress: bool
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
    model: PreTrainedModel = LlamaForCausalLM(config)
    table = require("rich.table", "cli").Table("model", "loss on new lines", "words correct", "keys used", "seconds")

    models: list[dict[str, Any]] = []

    def add(name: str, seconds: float | None) -> None:
        loss, right = score(model, new_data)
        share = sparsity_report(model, new_data.batches()).share if has_bound_attention(model) else 1.0
        models.append({"model": name, "loss": loss, "right": right, "share": share, "seconds": seconds})
        used = f"{share:.1%}" if has_bound_attention(model) else "all"
        table.add_row(name, f"{loss:.4f}", f"{right:.1%}", used, "" if seconds is None else f"{seconds:.0f}")

    def fine_tune() -> float:
        with progress_bar("fine-tuning", total=max(1, steps // 4), enabled=progress) as bar:
            return train(model, data, 1e-3, seed, bar)

    with progress_bar("training a dense model", total=steps, enabled=progress) as bar:
        add("dense (softmax)", train(model, data, 4e-3, seed, bar))
    dense = copy.deepcopy(model)
    add("then fine-tuned", fine_tune())
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
        progress=progress,
    )
    add("beta calibrated", report.seconds)
    add("then fine-tuned", fine_tune())
    console.print(table)
    plot_sparsity(sparsity_report(model, new_data.batches()), directory / "heads.png")
    sample = new_data.input_ids[0, : 2 * LINE]
    name, weights = list(record_associations(model, {"input_ids": sample[None]}).items())[-1]
    labels = [str(token) for token in tokenizer.convert_ids_to_tokens(sample.tolist())]
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
    console.print(f"{type(reloaded).__name__}: outputs are equal after reloading: {same}")
    again = to_dense(reloaded)
    console.print(f"{type(again).__name__}: with softmax, the same weights have a loss of {score(again, data)[0]:.4f}")
    return same


def train(model: PreTrainedModel, data: Echoes, learning_rate: float, seed: int, bar: tqdm) -> float:
    """Train with Trainer, for the steps of a bar. Returns the duration in seconds."""
    with tempfile.TemporaryDirectory() as scratch:
        arguments = TrainingArguments(
            output_dir=scratch,
            max_steps=bar.total,
            per_device_train_batch_size=16,
            learning_rate=learning_rate,
            warmup_steps=bar.total // 10,
            logging_strategy="no",
            save_strategy="no",
            report_to="none",
            seed=seed,
            use_cpu=True,
            disable_tqdm=True,
        )
        trainer = Trainer(model, arguments, train_dataset=data, callbacks=[TrainerProgress(bar)])
        trainer.remove_callback(PrinterCallback)  # it would print a dictionary between the tables
        start = time.perf_counter()
        trainer.train()
        return time.perf_counter() - start


@torch.no_grad()
def score(model: PreTrainedModel, data: Echoes) -> tuple[float, float]:
    """The mean loss in nats, and the share of the words predicted correctly."""
    model.eval()
    outputs = model(**data[:])
    labels = data.labels[:, 1:]
    right = (outputs.logits[:, :-1].argmax(-1) == labels)[labels != -100].float().mean()
    return outputs.loss.item(), right.item()
