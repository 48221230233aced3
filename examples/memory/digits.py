# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Recall images from noise: all 60,000 training images of MNIST in one memory, and a picture of what it recalls.

    python examples/memory/digits.py --data_dir DATA --output_dir OUT
    python examples/memory/digits.py --quick --output_dir OUT      # 8 x 8 digits from scikit-learn, seconds

`DATA` has `images/mnist.npz` (`x_train`, uint8). Images are centred and scaled to length 1. For each noise, `exact` is the share of
images that come back with an error below 1e-3, and `right` that for which the stored image has most weight.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from hf_sparse_hopfield import HopfieldMemory
from hf_sparse_hopfield.extras import require


NOISES = (0.0, 1.0, 2.0, 3.0, 4.0)  # length of the noise, where images have length 1
SHOWN = 8
MEMORIES = {"sparsemax": (2.0, 20.0), "entmax 1.5": (1.5, 60.0), "softmax": (1.0, 60.0)}  # alpha and beta


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_dir", type=Path, help="folder of the images")
    parser.add_argument("--output_dir", type=Path, required=True, help="folder of the picture and the results")
    parser.add_argument("--quick", action="store_true", help="8 x 8 digits from scikit-learn instead of MNIST")
    parser.add_argument("--queries", type=int, default=500, help="images to recall for each noise")
    arguments = parser.parse_args(argv)
    if arguments.data_dir is None and not arguments.quick:
        parser.error("--data_dir is missing: the folder with images/mnist.npz. Or use --quick.")
    return arguments


def load_images(arguments: argparse.Namespace) -> torch.Tensor:
    """Images `(number, height, width)` as floats."""
    if arguments.quick:
        return torch.tensor(require("sklearn.datasets", "examples").load_digits().images).float()
    return torch.tensor(np.load(arguments.data_dir / "images" / "mnist.npz")["x_train"]).float()


def recall(
    memory: HopfieldMemory, stored: torch.Tensor, chosen: torch.Tensor, noise: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Noisy queries, and what one step retrieves for them."""
    generator = torch.Generator().manual_seed(0)
    scale = noise / stored.shape[1] ** 0.5
    queries = stored[chosen] + scale * torch.randn(len(chosen), stored.shape[1], generator=generator)
    return queries, memory.retrieve(queries)  # type: ignore[return-value]


def main(argv: list[str] | None = None) -> dict:
    """Recall images for each memory and noise, print a table and draw a picture."""
    arguments = parse_arguments(argv)
    images = load_images(arguments)
    stored = F.normalize(images.flatten(1) - images.flatten(1).mean(0), dim=1)
    generator = torch.Generator().manual_seed(1)
    chosen = torch.randperm(len(stored), generator=generator)[: arguments.queries]
    results, pictures = [], []
    for name, (alpha, beta) in MEMORIES.items():
        memory = HopfieldMemory(stored, alpha=alpha, beta=beta)
        memory.retrieve(stored[:1])  # makes the int8 copy
        for noise in NOISES:
            start = time.perf_counter()
            queries, found = recall(memory, stored, chosen, noise)
            seconds = time.perf_counter() - start
            record = {"memory": name, "alpha": alpha, "beta": beta, "noise": noise, "patterns": len(stored)}
            record["exact"] = ((found - stored[chosen]).norm(dim=1) < 1e-3).float().mean().item()
            record["error"] = (found - stored[chosen]).norm(dim=1).mean().item()
            record["ms"] = seconds / len(chosen) * 1e3
            if alpha > 1:
                matches = memory.search(queries)
                record["right"] = (matches.rows[:, 0] == chosen).float().mean().item()
                record["support"] = (matches.rows >= 0).sum(1).float().mean().item()
            results.append(record)
            pictures.append((f"{name}, noise {noise:g}", found[:SHOWN]))
            if name == "sparsemax":
                pictures.append((f"query, noise {noise:g}", queries[:SHOWN]))
            shown = ", ".join(
                f"{key} {value:.3f}"
                for key, value in record.items()
                if key in ("exact", "right", "error", "support", "ms")
            )
            print(f"{name:10s} noise {noise:g}: {shown}", flush=True)
    arguments.output_dir.mkdir(parents=True, exist_ok=True)
    (arguments.output_dir / "digits.json").write_text(json.dumps(results, indent=1))
    draw(dict(pictures), images.shape[1:], arguments.output_dir / "digits.png")
    return {"results": results}


def draw(pictures: dict[str, torch.Tensor], shape: torch.Size, path: Path) -> None:
    """A row of images for each query and memory, a block for each noise."""
    lines = ["query", *MEMORIES]
    figure = require("matplotlib.figure", "examples").Figure(
        figsize=(SHOWN * len(NOISES) * 0.45, 3.0), layout="constrained"
    )
    blocks = figure.subfigures(1, len(NOISES))
    for block, noise in zip(blocks, NOISES, strict=True):
        block.suptitle(f"noise {noise:g}", fontsize=9)
        axes = block.subplots(len(lines), SHOWN // 2)
        for line, name in zip(axes, lines, strict=True):
            for axis, image in zip(line, pictures[f"{name}, noise {noise:g}"], strict=False):
                axis.imshow(image.reshape(shape).numpy(), cmap="gray")
                axis.set(xticks=[], yticks=[])
            if noise == NOISES[0]:
                line[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
