# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Support sizes for a model card: the share of the visible keys that get weight, as numbers and as a plot."""

import os
from collections.abc import Iterable
from typing import Any

from transformers import PreTrainedModel

from ..diagnostics.sparsity import layer_sparsity
from ..extras import require


PLOT_FILE = "support.png"


def support_sizes(model: PreTrainedModel, batches: Iterable[dict[str, Any]]) -> dict[str, list[float]]:
    """
    Count the share of the visible keys that get weight.

    Args:
        model ([`~transformers.PreTrainedModel`]): A sparse model, converted or made of the layers of this package.
        batches (iterable of `dict`): Model inputs.

    Returns:
        `dict[str, list[float]]`: For each attention module, one share per head.
    """
    return shares_of(layer_sparsity(model, list(batches), rows=256))


def shares_of(layers: dict[str, dict[str, list[float]]]) -> dict[str, list[float]]:
    """
    Read the support sizes from counted statistics.

    Args:
        layers (`dict`): From [`layer_sparsity`].
    """
    return {name: [1 - zeros for zeros in layer["zero_share"]] for name, layer in layers.items()}


def plot_support(support: dict[str, list[float]], path: str | os.PathLike) -> None:
    """
    Plot support sizes: one row per attention module, with one point per head and a bar for their mean.

    Args:
        support (`dict[str, list[float]]`): From [`support_sizes`].
        path (`str`): The file to write.
    """
    figure = require("matplotlib.figure", "cli").Figure(figsize=(8, 1.4 + 0.26 * len(support)), layout="constrained")
    axis = figure.subplots()
    for row, shares in enumerate(support.values()):
        axis.barh(row, sum(shares) / len(shares), color="lightsteelblue")
        axis.plot(shares, [row] * len(shares), ".", color="midnightblue", markersize=4)
    axis.set_yticks(range(len(support)), list(support), fontsize=7)
    axis.invert_yaxis()
    axis.set_xlim(0, 1)
    axis.set_xlabel("share of the visible keys that get weight (bar: mean, points: heads)")
    figure.savefig(path, dpi=110)
