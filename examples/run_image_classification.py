#!/usr/bin/env python
# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Image classification with Trainer, dense or with sparse Hopfield retrieval. `--smoke` runs a tiny example.

Images come from the Hub, from a directory (`--data_dir` with one directory per class), from parquet files with encoded
images, or from `.npz` files with the arrays `x_train` and `y_train` for the split `train`, and so on.
"""

import io
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from data_checks import check_columns, label_numbers
from data_splits import LabelledDataArguments, first_batches, load_splits, wanted_splits
from datasets import Dataset
from model_loading import ModelArguments, class_names, label_values, load_config, load_model
from run_text_classification import classification_metrics
from script_arguments import parse_arguments
from training_run import run
from transformers import AutoImageProcessor, AutoModelForImageClassification, PreTrainedConfig, ViTImageProcessor

from hf_sparse_hopfield.demo import digit_patterns
from hf_sparse_hopfield.extras import require
from hf_sparse_hopfield.training import SparseHopfieldTrainer


SMOKE = (
    "--model_type vit --max_steps 100 --learning_rate 3e-3 --beta 4 --per_device_train_batch_size 16 --config_overrides "
    "image_size=8,patch_size=2,num_channels=1,hidden_size=32,num_hidden_layers=2,num_attention_heads=4,intermediate_size=64"
).split()


@dataclass
class ImageClassificationArguments(LabelledDataArguments):
    """Data of image classification."""

    image_column: str = field(default="image", metadata={"help": "column with the images, encoded or as arrays"})
    shift: int = field(default=0, metadata={"help": "shift training images by up to this many pixels"})
    flip: bool = field(default=False, metadata={"help": "mirror half of the training images"})


def smoke_data() -> dict[str, Dataset]:
    """The ten digits embedded in the package, with noise."""
    digits = digit_patterns().reshape(10, 7, 5).numpy()
    generator = np.random.default_rng(0)

    def split(count: int) -> Dataset:
        labels = generator.integers(0, 10, count)
        images = np.zeros((count, 8, 8), dtype=np.uint8)
        noise = generator.normal(0, 20, (count, 7, 5))
        images[:, :7, 1:6] = np.clip(127.5 + 90 * digits[labels] + noise, 0, 255)
        return Dataset.from_dict({"image": list(images), "label": labels.tolist()})

    return {"train": split(400), "validation": split(50), "test": split(50)}


def read_npz(path: str, split: str) -> Dataset:
    """Read a split of an `.npz` file, for [`load_splits`]."""
    with np.load(path) as arrays:
        images, labels = arrays[f"x_{split}"], arrays[f"y_{split}"]
    if labels.shape != images.shape[:1]:
        raise ValueError(
            f"there are {len(images)} images, but y_{split} has the shape {labels.shape}; give one label per image"
        )
    return Dataset.from_dict({"image": list(images), "label": labels.tolist()})


def image_size(config: PreTrainedConfig) -> tuple[int, int]:
    """Height and width of the images a model takes."""
    size = config.image_size
    return (size[0], size[1]) if isinstance(size, (list, tuple)) else (size, size)


def as_bytes(pixels: np.ndarray) -> np.ndarray:
    """Convert pixels to bytes: integers from 0 to 255 are kept, floating point numbers from 0 to 1 are scaled."""
    largest = 1 if pixels.dtype.kind == "f" else 255
    if pixels.dtype.kind not in "uif" or not ((pixels >= 0) & (pixels <= largest)).all():
        raise ValueError(
            "pixels must be integers from 0 to 255 or floating point numbers from 0 to 1, got "
            f"{pixels.dtype} from {pixels.min()} to {pixels.max()}"
        )
    return np.round(pixels * 255).astype(np.uint8) if largest == 1 else pixels.astype(np.uint8)


def decode(dataset: Dataset, split: str, column: str, config: PreTrainedConfig) -> Dataset:
    """
    Decode all images to bytes of shape `(channels, height, width)`, in the size the model takes. This is done once, before
    training, so that a damaged image is found early.
    """
    image_module = require("PIL.Image", "examples")
    mode = "L" if config.num_channels == 1 else "RGB"

    def read(row: dict[str, Any], number: int) -> dict[str, np.ndarray]:
        value = row[column]
        try:
            if isinstance(value, dict):
                value = value["bytes"] if value.get("bytes") is not None else value["path"]
            if isinstance(value, (list, np.ndarray)):
                image = image_module.fromarray(as_bytes(np.asarray(value)))
            else:
                image = image_module.open(io.BytesIO(value) if isinstance(value, bytes) else value)
            image = image.convert(mode)
        except (OSError, ValueError, TypeError, SyntaxError) as error:
            raise ValueError(f"row {number} of the split {split!r} has no readable image: {error}") from error
        height, width = image_size(config)
        pixels = np.asarray(image if image.size == (width, height) else image.resize((width, height)))
        return {"pixels": np.atleast_3d(pixels).transpose(2, 0, 1)}

    if hasattr(dataset.features[column], "decode"):
        dataset = dataset.cast_column(column, type(dataset.features[column])(decode=False))
    return dataset.select_columns(column).map(read, with_indices=True, remove_columns=column)


def make_collator(mean: list[float], std: list[float], shift: int = 0, flip: bool = False) -> Callable:
    """Make a collator that normalises images and, if asked to, shifts and mirrors them at random."""
    mean, std = (torch.tensor(values).reshape(1, -1, 1, 1) for values in (mean, std))

    def collate(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        pixels = torch.from_numpy(np.stack([np.asarray(row["pixels"], dtype=np.uint8) for row in rows])).float() / 255
        if flip:
            pixels = torch.where(torch.rand(len(rows), 1, 1, 1) < 0.5, pixels.flip(-1), pixels)
        if shift:
            height, width = pixels.shape[-2:]
            padded = torch.nn.functional.pad(pixels, [shift] * 4)
            corners = torch.randint(0, 2 * shift + 1, (len(rows), 2)).tolist()
            pixels = torch.stack(
                [image[:, y : y + height, x : x + width] for image, (y, x) in zip(padded, corners, strict=True)]
            )
        labels = torch.tensor([row["labels"] for row in rows])
        return {"pixel_values": (pixels - mean) / std, "labels": labels}

    return collate


class ImageTrainer(SparseHopfieldTrainer):
    """A trainer that shifts and mirrors images in training only."""

    def __init__(self, *args: Any, training_collator: Callable, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.training_collator = training_collator

    def get_train_dataloader(self) -> torch.utils.data.DataLoader:
        """As Trainer's, with the training collator."""
        plain, self.data_collator = self.data_collator, self.training_collator
        try:
            return super().get_train_dataloader()
        finally:
            self.data_collator = plain


def load_processor(model_arguments: ModelArguments, config: PreTrainedConfig) -> Any:
    """Load the image processor of a pretrained model, or make one. It is saved with the model, for pipelines."""
    if model_arguments.model_name_or_path:
        return AutoImageProcessor.from_pretrained(model_arguments.model_name_or_path)
    height, width = image_size(config)
    half = [0.5] * config.num_channels
    return ViTImageProcessor(size={"height": height, "width": width}, image_mean=half, image_std=half)


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Train, evaluate and test. Returns the summary."""
    arguments = parse_arguments(ImageClassificationArguments, SMOKE, argv)
    model_arguments, data, sparse, training, _ = arguments
    splits = load_splits(data, smoke_data, {".npz": read_npz}, wanted_splits(training))
    check_columns(splits, {"image_column": data.image_column, "label_column": data.label_column})
    labels = class_names(model_arguments, data, splits)
    config = load_config(model_arguments, "vit", **label_values(labels))
    images = {}
    for split, dataset in splits.items():
        decoded = decode(dataset, split, data.image_column, config)
        images[split] = decoded.add_column("labels", label_numbers(dataset, data.label_column, labels)).with_format(
            "numpy"
        )
    processor = load_processor(model_arguments, config)
    mean, std = processor.image_mean, processor.image_std
    model = load_model(model_arguments, config, AutoModelForImageClassification)
    collator = make_collator(mean, std)
    batches = first_batches(images.get("train"), collator, sparse.calibration_batches, 16, labels=False)
    model = sparse.prepare(model, batches)
    training.remove_unused_columns = False  # the collator turns `pixels` into `pixel_values`
    trainer = ImageTrainer(
        model=model,
        args=training,
        train_dataset=images.get("train"),
        eval_dataset=images.get("validation"),
        data_collator=collator,
        training_collator=make_collator(mean, std, data.shift, data.flip),
        processing_class=processor,
        compute_metrics=classification_metrics,
        sparse_hopfield_args=sparse,
    )
    return run(trainer, arguments, images, "image-classification", keep=("accuracy", "f1", "loss"))


if __name__ == "__main__":
    main()
