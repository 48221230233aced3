# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Make an image classifier sparse, and compare its accuracy with that of the dense one.

The classifier is one that `run_image_classification.py` trained. Calibration and distillation see training images; the accuracy is that on
all test images, with the standard error of the paired difference.

python examples/conversion/vision.py --model path/to/vit --data mnist.npz --alpha 1.5 --distill_steps 200 --output results/vit.json
"""

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm.auto import tqdm
from transformers import AutoImageProcessor, AutoModelForImageClassification, PreTrainedModel

from hf_sparse_hopfield import calibrate, distill
from hf_sparse_hopfield.diagnostics import sparsity_report
from hf_sparse_hopfield.files import write_json


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="folder of a dense image classifier")
    parser.add_argument("--data", type=Path, required=True, help=".npz with x_train, y_train, x_test and y_test")
    parser.add_argument("--alpha", type=float, default=1.5)
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--distill_steps", type=int, default=0, help="steps of distillation (default: none)")
    parser.add_argument("--seed", type=int, default=0, help="chooses the training images (default: 0)")
    parser.add_argument("--output", type=Path, required=True, help="JSON file for the figures")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    """Convert, and print the table."""
    arguments = parse_arguments(argv)
    model = AutoModelForImageClassification.from_pretrained(arguments.model).eval()
    processor = AutoImageProcessor.from_pretrained(arguments.model)
    with np.load(arguments.data) as arrays:
        count = max(32, arguments.distill_steps) * arguments.batch_size
        order = np.random.default_rng(arguments.seed).permutation(len(arrays["x_train"]))[:count]
        train = _batches(arrays["x_train"][order], arrays["y_train"][order], processor, arguments.batch_size)
        test = _batches(arrays["x_test"], arrays["y_test"], processor, arguments.batch_size)
    # The dense model is the target, so labels are of no use here.
    unlabelled = [{"pixel_values": batch["pixel_values"]} for batch in train]
    right = {"dense": correct(model, test)}
    keys: dict[str, float] = {}
    model, _ = calibrate(model, unlabelled, alpha=arguments.alpha)
    right["calibrated"], keys["calibrated"] = correct(model, test), _keys(model, unlabelled)
    if arguments.distill_steps:
        layer_steps = arguments.distill_steps // 4
        options = {"steps": arguments.distill_steps - layer_steps, "layer_steps": layer_steps}
        model, _ = distill(model, unlabelled, **options)
        right["distilled"], keys["distilled"] = correct(model, test), _keys(model, unlabelled)
    figures: dict[str, Any] = {"images": len(right["dense"])}
    print("| | keys | accuracy | to dense |\n" + "| --- " * 4 + "|")
    for name, found in right.items():
        each = (found.float() - right["dense"].float()) * 100
        difference, error = each.mean().item(), each.std().item() / math.sqrt(len(each))
        figures[name] = {
            "keys": keys.get(name, 1.0),
            "accuracy": found.float().mean().item(),
            "difference": difference,
            "error": error,
        }
        print(
            f"| {name} | {keys.get(name, 1.0):.1%} | {found.float().mean():.2%} | {difference:+.2f} ± {error:.2f} points |"
        )
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    write_json(arguments.output, figures)


def _batches(images: np.ndarray, labels: np.ndarray, processor: Any, size: int) -> list[dict[str, torch.Tensor]]:
    pixels = torch.from_numpy(images).float() / 255
    pixels = pixels[:, None] if pixels.ndim == 3 else pixels.permute(0, 3, 1, 2)
    channels = pixels.shape[1]
    mean, std = (
        torch.tensor(values[:channels]).reshape(1, -1, 1, 1) for values in (processor.image_mean, processor.image_std)
    )
    pixels = (pixels - mean) / std
    return [
        {"pixel_values": part, "labels": wanted}
        for part, wanted in zip(pixels.split(size), torch.from_numpy(labels).long().split(size), strict=True)
    ]


@torch.no_grad()
def correct(model: PreTrainedModel, batches: list[dict[str, torch.Tensor]]) -> torch.Tensor:
    """
    Return which images a model classifies correctly.

    Args:
        model ([`~transformers.PreTrainedModel`]): The classifier.
        batches (`list[dict]`): `pixel_values` and `labels`.
    """
    model.eval()
    return torch.cat(
        [
            model(pixel_values=batch["pixel_values"]).logits.argmax(-1) == batch["labels"]
            for batch in tqdm(batches, desc="testing")
        ]
    )


def _keys(model: PreTrainedModel, batches: list[dict[str, torch.Tensor]]) -> float:
    return sparsity_report(model, batches[:4], rows=64).share


if __name__ == "__main__":
    main()
