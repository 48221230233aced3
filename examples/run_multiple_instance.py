#!/usr/bin/env python
# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Multiple-instance classification with Trainer: one label for a bag of instances. Bags are aggregated by Hopfield
pooling, Hopfield self-association or attention (`--aggregation`); `--sparse_hopfield False` is the dense baseline.

Each row of the data is a bag: one column holds the instances (a list of lists of numbers), another the label. A `.npz` file
holds `features`, one row per instance, `bag_ids`, the bag of each instance, and `bag_labels`. Features are standardised on
the training bags. `--smoke` runs a tiny example.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from data_checks import check_columns, label_numbers
from data_splits import LabelledDataArguments, load_splits, wanted_splits
from datasets import Dataset
from feature_scale import Scale, load_scale
from model_loading import ModelArguments, class_names, label_values, load_model, own_config
from script_arguments import parse_arguments
from training_run import run
from transformers import AutoModelForSequenceClassification, EvalPrediction

from hf_sparse_hopfield.metrics import load_metric
from hf_sparse_hopfield.models import MultipleInstanceCollator, SparseHopfieldMultipleInstanceConfig
from hf_sparse_hopfield.training import SparseHopfieldArguments, SparseHopfieldTrainer


SMOKE = (
    "--max_steps 150 --learning_rate 1e-2 --per_device_train_batch_size 32 --logging_steps 50 "
    "--config_overrides embedding_layers=1,embedding_size=32"
).split()


@dataclass
class MultipleInstanceArguments(LabelledDataArguments):
    """Data and model of multiple-instance classification."""

    instances_column: str = field(default="instances", metadata={"help": "column with the instances of a bag"})
    aggregation: str | None = field(
        default=None,
        metadata={
            "help": "pooling, hopfield, attention or gated_attention (default: the model's; pooling for a new model)"
        },
    )
    standardize: bool = field(
        default=True, metadata={"help": "scale features to mean 0 and deviation 1 on the training data"}
    )


def smoke_data() -> dict[str, Dataset]:
    """Bags of noise; a positive bag has one instance that is far out in one direction."""
    generator = np.random.default_rng(0)

    def split(count: int) -> Dataset:
        labels = (np.arange(count) % 2).tolist()
        bags = [generator.normal(size=(generator.integers(5, 15), 6)) for _ in labels]
        for bag, label in zip(bags, labels, strict=True):
            bag[0] += 4.0 * label
        return Dataset.from_dict({"instances": [bag.tolist() for bag in bags], "label": labels})

    return {"train": split(256), "validation": split(64), "test": split(64)}


def read_npz(path: str, split: str = "train") -> Dataset:
    """
    Read the bags of a `.npz` file.

    Args:
        path (`str`): A file with `features` `(instances, input_size)`, `bag_ids` `(instances,)` and `bag_labels` `(bags,)`.
        split (`str`, *optional*): The split the bags are for; not used.
    """
    with np.load(path) as content:
        features, owners, labels = (np.asarray(content[name]) for name in ("features", "bag_ids", "bag_labels"))
    if not np.array_equal(labels, labels.astype(int)):
        raise ValueError("bag_labels must be whole numbers")
    missing = sorted(set(range(len(labels))) - set(owners.tolist()))
    if missing or len(owners) != len(features) or owners.max(initial=-1) >= len(labels):
        raise ValueError(
            f"bag_ids must assign each of the {len(features)} rows of features to one of the {len(labels)} bags, with at least "
            f"one row per bag; bags without an instance: {missing[:5]}."
        )
    bags = [features[owners == bag].tolist() for bag in range(len(labels))]
    return Dataset.from_dict({"instances": bags, "label": labels.astype(int).tolist()})


def to_bags(splits: dict[str, Dataset], data: MultipleInstanceArguments, labels: list[str]) -> dict[str, list[dict]]:
    """Check every bag and convert it to the form the collator takes."""
    bags: dict[str, list[dict]] = {}
    width = None
    for split, dataset in splits.items():
        bags[split] = []
        numbers = label_numbers(dataset, data.label_column, labels)
        for row, (instances, label) in enumerate(zip(dataset[data.instances_column], numbers, strict=True)):
            try:
                bag = np.asarray(instances, dtype=np.float32)
            except (TypeError, ValueError) as error:
                raise ValueError(f"row {row} of the split {split!r} has instances of different widths.") from error
            width = bag.shape[-1] if width is None and bag.ndim == 2 else width
            if bag.ndim != 2 or not len(bag) or bag.shape[1] != width or not np.isfinite(bag).all():
                raise ValueError(
                    f"row {row} of the split {split!r} has instances of shape {bag.shape}; they must be finite numbers of "
                    f"shape (instances, {width or 'features'}), with at least one instance."
                )
            bags[split].append({"instances": bag, "labels": label})
    return bags


def instances_of(bags: list[np.ndarray]) -> torch.Tensor:
    """Concatenate the instances of bags of shape `(instances, features)`."""
    return torch.from_numpy(np.concatenate(bags).astype(np.float64))


def standardize(bags: dict[str, list[dict]], scale: Scale) -> None:
    """Standardise all bags of all splits in place."""
    mean, deviation = (values.numpy() for values in scale)
    for split in bags.values():
        for bag in split:
            bag["instances"] = ((bag["instances"] - mean) / deviation).astype(np.float32)


def make_config(
    model_arguments: ModelArguments,
    data: MultipleInstanceArguments,
    sparse: SparseHopfieldArguments,
    width: int,
    labels: list[str],
) -> SparseHopfieldMultipleInstanceConfig:
    """Return the configuration of a pretrained model, which must fit the data, or a new one."""
    asked = {"input_size": width, "num_labels": len(labels)}
    if data.aggregation is not None:
        asked["aggregation"] = data.aggregation
    settings = sparse.layer_settings()
    retrieval = {name: settings[name] for name in ("alpha", "beta", "learn_alpha", "learn_beta")}
    retrieval |= {"update_steps": settings["steps"] - 1, "update_eps": settings["tolerance"]}
    required = {} if sparse.sparse_hopfield else {"alpha": 1.0}
    names = {key: value for key, value in label_values(labels).items() if key != "num_labels"}
    return own_config(model_arguments, SparseHopfieldMultipleInstanceConfig, asked, {**retrieval, **names}, required)


def bag_metrics(prediction: EvalPrediction) -> dict[str, float]:
    """Accuracy and, for two classes, the area under the ROC curve."""
    logits = prediction.predictions[0] if isinstance(prediction.predictions, tuple) else prediction.predictions
    labels = prediction.label_ids
    metrics = load_metric("accuracy").compute(predictions=np.argmax(logits, -1), references=labels)
    if logits.shape[1] == 2 and len(set(labels.tolist())) == 2:
        metrics |= load_metric("roc_auc").compute(prediction_scores=logits[:, 1] - logits[:, 0], references=labels)
    return metrics


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Train, evaluate and test. Returns the summary."""
    arguments = parse_arguments(MultipleInstanceArguments, SMOKE, argv)
    model_arguments, data, sparse, training, _ = arguments
    splits = load_splits(data, smoke_data, {".npz": read_npz}, wanted_splits(training))
    check_columns(splits, {"instances_column": data.instances_column, "label_column": data.label_column})
    labels = class_names(model_arguments, data, splits)
    bags = to_bags(splits, data, labels)
    width = next(iter(bags.values()))[0]["instances"].shape[1]
    config = make_config(model_arguments, data, sparse, width, labels)
    scale = None
    if data.standardize:
        rows = instances_of([bag["instances"] for bag in bags["train"]]) if "train" in bags else None
        scale = load_scale(arguments, rows)
    if scale is not None:
        standardize(bags, scale)
    model = load_model(model_arguments, config, AutoModelForSequenceClassification)
    if config.aggregation in ("pooling", "hopfield"):
        model = sparse.prepare(model)
    training.label_names = ["labels"]
    trainer = SparseHopfieldTrainer(
        model=model,
        args=training,
        train_dataset=bags.get("train"),
        eval_dataset=bags.get("validation"),
        data_collator=MultipleInstanceCollator(),
        compute_metrics=bag_metrics,
        sparse_hopfield_args=sparse,
    )
    keep = ("accuracy", "roc_auc", "loss")
    return run(trainer, arguments, bags, "tabular-classification", keep, scale=scale)


if __name__ == "__main__":
    main()
