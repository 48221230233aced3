# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""A memory of ten digits, recalled from noise."""

import os

import torch

from ..extras import require
from ..layers import HopfieldMemory
from ..layers.memory import MemoryTrace


# Ten digits of 5 x 7 pixels; each number is one row of pixels.
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


def digit_patterns() -> torch.Tensor:
    """The digits as patterns of -1 and 1, shape `(10, 35)`."""
    rows = torch.tensor(DIGITS)[..., None]
    return ((rows >> torch.arange(4, -1, -1)) & 1).flatten(1) * 2.0 - 1


def recall_digits(path: str | os.PathLike, seed: int) -> list[tuple[str, float, float, float]]:
    """
    Recall the digits from noise with sparse and dense memories, and plot them.

    Args:
        path (`str`): The plot to write.
        seed (`int`): Seed of the noise.

    Returns:
        `list`: Of each memory its name, the mean error, the share recalled exactly and the mean number of patterns used.
    """
    figure_class = require("matplotlib.figure", "cli").Figure
    patterns = digit_patterns()
    generator = torch.Generator().manual_seed(seed)
    noisy = patterns + 0.8 * torch.randn(patterns.shape, generator=generator)
    rows, images = [], [("stored", patterns), ("query", noisy)]
    for name, alpha in (("sparse, alpha = 2", 2.0), ("entmax15, alpha = 1.5", 1.5), ("dense, alpha = 1", 1.0)):
        trace = HopfieldMemory(patterns, alpha=alpha, beta=BETA).retrieve(noisy, steps=3, return_trace=True)
        assert isinstance(trace, MemoryTrace)
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
