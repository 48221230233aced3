#!/usr/bin/env python
# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Prediction of multivariate time series with Trainer: Crossformer (`--sparse_hopfield False`), or the same model built
from Hopfield layers, dense (`--alpha 1`, Crossformer-DH) or sparse (Crossformer-SH).

The data are one table in chronological order (csv, Parquet, or a dataset on the Hub). Its columns are the series; the first
one may hold dates. It is split by time and standardised on the training part. `--smoke` runs a tiny example.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from data_checks import check_columns
from data_splits import DataArguments, load_splits
from datasets import Dataset
from feature_scale import load_scale
from model_loading import ModelArguments, load_model, own_config
from script_arguments import parse_arguments
from training_run import run
from transformers import AutoModelForTimeSeriesPrediction, EarlyStoppingCallback, EvalPrediction

from hf_sparse_hopfield.metrics import load_metric
from hf_sparse_hopfield.models import SparseHopfieldCrossformerConfig, split_lengths, split_series
from hf_sparse_hopfield.training import SparseHopfieldArguments, SparseHopfieldTrainer


SMOKE = (
    "--context_length 40 --prediction_length 8 --max_steps 60 --learning_rate 3e-3 --logging_steps 20 "
    "--config_overrides hidden_size=32,intermediate_size=64,num_hidden_layers=2,segment_length=8,num_routers=3"
).split()


@dataclass
class TimeSeriesArguments(DataArguments):
    """Data of time series prediction. `--train_file` (or the dataset's split `train`) holds the whole series."""

    series_columns: str | None = field(
        default=None, metadata={"help": "columns to predict, as A,B,C (default: all except a first column with dates)"}
    )
    split_sizes: str = field(
        default="0.7,0.1,0.2",
        metadata={"help": "training, validation and test: three shares or three numbers of time steps"},
    )
    context_length: int | None = field(
        default=None, metadata={"help": "time steps of the past (default: the model's; 168 for a new model)"}
    )
    prediction_length: int | None = field(
        default=None, metadata={"help": "time steps of the future (default: the model's; 24 for a new model)"}
    )
    early_stopping_patience: int | None = field(
        default=None,
        metadata={"help": "stop after this many evaluations without progress; needs --load_best_model_at_end"},
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("validation_file", "test_file", "split_column"):
            if getattr(self, name) is not None:
                raise ValueError(
                    f"{name}={getattr(self, name)!r}: a series is one table, given as train_file and split by --split_sizes."
                )
        try:
            self.sizes = tuple(float(size) for size in self.split_sizes.split(","))
        except ValueError as error:
            raise ValueError(
                f"split_sizes must be three numbers such as 0.7,0.1,0.2, got {self.split_sizes!r}."
            ) from error


def smoke_data() -> dict[str, Dataset]:
    """Two noisy waves of different periods and their mean."""
    generator = np.random.default_rng(0)
    time = np.arange(600)
    waves = np.stack([np.sin(time / 4), np.cos(time / 10)], axis=1)
    waves = np.concatenate([waves, waves.mean(axis=1, keepdims=True)], axis=1)
    waves += 0.1 * generator.normal(size=waves.shape)
    table = Dataset.from_dict({f"wave_{channel}": waves[:, channel] for channel in range(waves.shape[1])})
    return {"train": table}


def read_series(data: TimeSeriesArguments) -> torch.Tensor:
    """Read the series into one tensor `(time, channels)`."""
    table = load_splits(data, smoke_data, wanted=("train",), in_order=True)["train"]
    columns = data.series_columns.split(",") if data.series_columns else table.column_names
    series = []
    for place, column in enumerate(columns):
        check_columns({"train": table}, {"series_columns": column})
        if not getattr(table.features[column], "dtype", "").startswith(("int", "uint", "float")):
            if place == 0 and not data.series_columns:
                continue  # the date
            raise ValueError(
                f"the column {column!r} must hold numbers without gaps, but it was read as {table.features[column]}; "
                "--series_columns names the columns to predict."
            )
        series.append(np.asarray(table[column], dtype=np.float64))
    if not series:
        raise ValueError(f"the table has no column of numbers, only {table.column_names}.")
    return torch.from_numpy(np.stack(series, axis=1))


def forecast_metrics(prediction: EvalPrediction) -> dict[str, float]:
    """Mean squared and mean absolute error on standardised data."""
    predicted = prediction.predictions[0] if isinstance(prediction.predictions, tuple) else prediction.predictions
    windows = {"predictions": predicted, "references": prediction.label_ids}
    windows = {name: values.reshape(len(values), -1) for name, values in windows.items()}
    return {**load_metric("mse").compute(**windows), **load_metric("mae").compute(**windows)}


def make_config(
    model_arguments: ModelArguments, data: TimeSeriesArguments, sparse: SparseHopfieldArguments, channels: int
) -> SparseHopfieldCrossformerConfig:
    """Return the configuration of a pretrained model, which must fit the data, or a new one."""
    asked = {"context_length": data.context_length, "prediction_length": data.prediction_length}
    asked = {"num_input_channels": channels, **{name: value for name, value in asked.items() if value is not None}}
    retrieval = {"attention": "softmax", "alpha": 1.0}
    if sparse.sparse_hopfield:
        retrieval = {"attention": "sparse", **sparse.layer_settings()}
    required = {} if sparse.sparse_hopfield else {"attention": "softmax"}
    return own_config(model_arguments, SparseHopfieldCrossformerConfig, asked, retrieval, required)


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Train, evaluate and test. Returns the summary."""
    arguments = parse_arguments(TimeSeriesArguments, SMOKE, argv)
    model_arguments, data, sparse, training, _ = arguments
    series = read_series(data)
    config = make_config(model_arguments, data, sparse, series.shape[1])
    limits = (data.max_train_samples, data.max_eval_samples, data.max_test_samples)
    scale = load_scale(arguments, series[: split_lengths(len(series), data.sizes)[0]])
    windows = split_series(series, data.sizes, config.context_length, config.prediction_length, limits, scale)
    model = sparse.prepare(load_model(model_arguments, config, AutoModelForTimeSeriesPrediction))
    training.label_names = ["future_values"]
    callbacks = []
    if data.early_stopping_patience is not None:
        callbacks.append(EarlyStoppingCallback(data.early_stopping_patience))
    trainer = SparseHopfieldTrainer(
        model=model,
        args=training,
        train_dataset=windows["train"],
        eval_dataset=windows["validation"],
        compute_metrics=forecast_metrics,
        callbacks=callbacks,
        sparse_hopfield_args=sparse,
    )
    return run(trainer, arguments, windows, "time-series-forecasting", keep=("mse", "mae"), scale=scale)


if __name__ == "__main__":
    main()
