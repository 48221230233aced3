# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Multivariate time series: Crossformer, and the same with dense (-DH) or sparse (-SH) Hopfield layers as its attention.

    python examples/paper/time_series.py --data_dir DATA --output_dir OUT            # ETTh1, ETTm1, ILI, WTH
    python examples/paper/time_series.py --data_dir DATA --output_dir OUT --only "ETTh1-24/*"
    python examples/paper/time_series.py --quick --output_dir OUT                    # generated waves, seconds

Splits, standardisation and errors follow the literature: ETT 12/4/4 months, WTH 28/10/10 months, ILI 70/10/20 %, mean and
deviation of the training part, all test windows (2900 of them, evenly spread, for ETTm1 and WTH). Layers are smaller than the
published ones (see `SETTINGS`), so that a run takes from a quarter of a minute (ILI) to seven minutes (ETTh1-168) on one core.
They are the same for the three models.
"""

import copy
import math
import sys
import time
from pathlib import Path
from typing import Any

import torch
from harness import Cell, ExperimentArguments, parse, run
from time_series_report import ATTENTION, PAPER, report

from hf_sparse_hopfield.extras import require
from hf_sparse_hopfield.models import (
    SparseHopfieldCrossformerConfig,
    SparseHopfieldCrossformerForPrediction,
    split_series,
)
from hf_sparse_hopfield.training.sparsity_logging import sparsity_metrics


sys.path.append(str(Path(__file__).parents[1]))  # the training scripts

import run_time_series  # noqa: E402


FILES = {
    "ETTh1": "timeseries/ETTh1.csv.gz",
    "ETTm1": "timeseries/ETTm1.csv.gz",
    "ILI": "timeseries/ILI_national_illness.csv.gz",
    "WTH": "timeseries/WTH.csv.gz",
}
MONTH = 30 * 24
SPLITS = {
    "ETTh1": (12 * MONTH, 4 * MONTH, 4 * MONTH),
    "ETTm1": (48 * MONTH, 16 * MONTH, 16 * MONTH),
    "ILI": (0.7, 0.1, 0.2),
    "WTH": (28 * MONTH, 10 * MONTH, 10 * MONTH),
    "waves": (0.6, 0.2, 0.2),
}
# The same training for all three models. Published (scripts of Crossformer): hidden_size 256, intermediate_size 512, 3 layers (ILI
# 2), 10 routers, batch 32, Adam at 1e-4 (ILI 5e-4) halved every epoch, dropout 0.2 (ILI 0.6), segments of 6 (ETTm1-24: 12),
# context 168 (ETTh1), 288 (ETTm1), 48 (ILI, WTH).
COMMON = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_routers": 4,
    "center": "last",
    "batch_size": 32,
    "evaluate_every": 50,
    "validation_windows": 500,
    "patience": 4,
}
# Smaller seeds were used while choosing the settings.
FIRST_SEED = {"ETTh1": 20, "ETTm1": 10, "ILI": 10, "WTH": 10, "waves": 10}
SETTINGS = {
    "ETTh1": {"context_length": 96, "segment_length": 12, "dropout": 0.2, "learning_rate": 1e-3, "max_steps": 1000}
    | {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "evaluate_every": 100},
    "ETTm1": {"context_length": 288, "segment_length": 24, "dropout": 0.1, "learning_rate": 2e-3, "max_steps": 1000}
    | {"num_attention_heads": 4, "test_windows": 2900, "evaluate_every": 100},
    "ILI": {"context_length": 104, "segment_length": 12, "dropout": 0.2, "learning_rate": 3e-3, "max_steps": 120}
    | {"evaluate_every": 10},
    "WTH": {"context_length": 48, "segment_length": 12, "dropout": 0.1, "learning_rate": 2e-3, "max_steps": 1000}
    | {"test_windows": 2900, "evaluate_every": 100},
    "waves": {"context_length": 24, "segment_length": 6, "dropout": 0.0, "learning_rate": 3e-3, "max_steps": 12}
    | {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_routers": 2, "evaluate_every": 4},
}


def waves() -> torch.Tensor:
    """Generate the data for `--quick`."""
    generated = run_time_series.smoke_data()["train"]
    return torch.tensor(list(generated.to_dict().values())).T


def read(path: Path) -> torch.Tensor:
    """Read all columns of a table except the first, the date."""
    table_of_values = require("pandas", "examples").read_csv(path)
    return torch.tensor(table_of_values.iloc[:, 1:].to_numpy("float64"))


@torch.no_grad()
def errors(model: SparseHopfieldCrossformerForPrediction, windows: Any, batch_size: int = 128) -> tuple[float, float]:
    """Compute mean squared and mean absolute error over all windows."""
    model.eval()
    squared, absolute, count = 0.0, 0.0, 0
    for indices in torch.arange(len(windows)).split(batch_size):
        batch = windows[indices]
        error = (model(batch["past_values"]).prediction_outputs - batch["future_values"]).double()
        squared += error.square().sum().item()
        absolute += error.abs().sum().item()
        count += error.numel()
    return squared / count, absolute / count


def train(
    dataset: str,
    horizon: int,
    model: str,
    seed: int,
    batch_size: int,
    learning_rate: float,
    max_steps: int,
    evaluate_every: int,
    validation_windows: int,
    patience: int,
    values: torch.Tensor,
    test_windows: int | None = None,
    **architecture: Any,
) -> dict[str, Any]:
    """Train one model with early stopping on validation windows. Returns its errors on the test windows."""
    torch.manual_seed(seed)
    context = architecture["context_length"]
    windows = split_series(values, SPLITS[dataset], context, horizon, (None, validation_windows, test_windows))
    config = SparseHopfieldCrossformerConfig(
        num_input_channels=values.shape[1], prediction_length=horizon, attention=ATTENTION[model], **architecture
    )
    network = SparseHopfieldCrossformerForPrediction(config)
    optimizer = torch.optim.Adam(network.parameters(), lr=learning_rate, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, learning_rate, total_steps=max_steps, pct_start=0.1)
    started = time.process_time()
    best, best_step, best_state, curve = math.inf, 0, None, []
    # A separate generator, so that every model sees the same batches whatever else it draws.
    generator = torch.Generator().manual_seed(seed)
    order: list[torch.Tensor] = []
    for step in range(1, max_steps + 1):
        if not order:
            shuffled = torch.randperm(len(windows["train"]), generator=generator)
            order = list(shuffled[: len(shuffled) // batch_size * batch_size].split(batch_size))
        network.train()
        loss = network(**windows["train"][order.pop()]).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % evaluate_every == 0 or step == max_steps:
            validation = errors(network, windows["validation"])[0]
            curve.append([step, loss.item(), validation])
            if validation < best:
                best, best_step, best_state = validation, step, copy.deepcopy(network.state_dict())
            elif step - best_step >= patience * evaluate_every:
                break
    network.load_state_dict(best_state)
    mse, mae = errors(network, windows["test"])
    look = windows["test"][torch.linspace(0, len(windows["test"]) - 1, 32).long()]
    return {
        "mse": mse,
        "mae": mae,
        "validation_mse": best,
        "best_step": best_step,
        "steps": step,
        "curve": curve,
        "zero_share": sparsity_metrics(network, {"past_values": look["past_values"]})["sparsity/zero_share"],
        "parameters": network.num_parameters(),
        "test_windows": len(windows["test"]),
        "cpu_seconds": round(time.process_time() - started, 1),
    }


def linear(dataset: str, horizon: int, context_length: int, values: torch.Tensor) -> dict[str, Any]:
    """A baseline: ridge regression of the future of each series on its own past, in closed form."""
    windows = split_series(values, SPLITS[dataset], context_length, horizon)
    started = time.process_time()

    def inputs(batch: dict[str, torch.Tensor], channel: int) -> torch.Tensor:
        past = batch["past_values"][:, :, channel].double()
        return torch.cat([past, torch.ones(len(past), 1, dtype=past.dtype)], dim=1)

    # Windows overlap, so 6000 of them, evenly spread, are enough.
    train_indices = torch.linspace(0, len(windows["train"]) - 1, min(len(windows["train"]), 6000)).long()
    known, asked = windows["train"][train_indices], windows["test"][torch.arange(len(windows["test"]))]
    found = []
    for channel in range(values.shape[1]):
        past, future = inputs(known, channel), known["future_values"][:, :, channel].double()
        penalty = 1e-3 * len(past) * torch.eye(past.shape[1], dtype=past.dtype)
        weights = torch.linalg.solve(past.T @ past + penalty, past.T @ future)
        found.append(inputs(asked, channel) @ weights - asked["future_values"][:, :, channel])
    error = torch.stack(found)
    return {
        "mse": error.square().mean().item(),
        "mae": error.abs().mean().item(),
        "cpu_seconds": round(time.process_time() - started, 1),
    }


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Run the missing cells, and write the record and the report."""
    arguments = parse(ExperimentArguments, argv)
    chosen = ["waves-6"] if arguments.quick else list(PAPER)
    values: dict[str, torch.Tensor] = {"waves": waves()}
    if not arguments.quick and not arguments.report_only:
        paths = dict(zip(FILES, arguments.require_data(*FILES.values()), strict=True))
        values |= {dataset: read(path) for dataset, path in paths.items()}
    cells = {}
    for task in chosen:
        dataset, horizon = task.rsplit("-", 1)
        for number in arguments.seed_range(full=3, quick=2):
            seed = FIRST_SEED[dataset] + number
            for model in ATTENTION:
                settings = {"dataset": dataset, "horizon": int(horizon), "model": model, "seed": seed}
                settings |= COMMON | SETTINGS[dataset]
                cells[f"{task}/{model}/seed{seed}"] = Cell(train, settings, {"values": values.get(dataset)})
        context = SETTINGS[dataset]["context_length"]
        settings = {"dataset": dataset, "horizon": int(horizon), "context_length": context}
        cells[f"{task}/linear"] = Cell(linear, settings, {"values": values.get(dataset)})
    return run("time_series", arguments, cells, report)


if __name__ == "__main__":
    main()
