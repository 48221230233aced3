# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Plots of the results of `sparsity.py` and `associations.py`."""

import os
from typing import Any

import torch

from ..extras import require
from .sparsity import SparsityReport


_QUANTITIES = {
    "share": "visible keys with weight",
    "entropy": "entropy in nats",
    "beta": "beta",
    "alpha": "alpha",
}


def _padded(rows: list[list[float]]) -> list[list[float]]:
    # layers may differ in their number of heads; NaN stays blank in a heat map
    width = max(len(row) for row in rows)
    return [[float(value) for value in row] + [float("nan")] * (width - len(row)) for row in rows]


def plot_sparsity(report: SparsityReport, path: str | os.PathLike | None = None) -> Any:
    """
    Heat maps of a report: one row per layer, one column per head, with colour bars; dead heads are crossed out.

    Args:
        report ([`SparsityReport`]): From [`sparsity_report`].
        path (`str`, *optional*): File to save the plot to.

    Returns:
        `matplotlib.figure.Figure`: The plot. matplotlib does not keep it.
    """
    figure_class = require("matplotlib.figure", "cli").Figure
    names = list(report.layers)
    figure = figure_class(figsize=(14, 1.6 + 0.22 * len(names)), layout="constrained")
    figure.suptitle(f"{report.share:.1%} of the visible keys get weight")
    axes = figure.subplots(1, len(_QUANTITIES), sharey=True)
    for axis, (name, title) in zip(axes, _QUANTITIES.items(), strict=True):
        image = axis.imshow(_padded(report.matrix(name)), aspect="auto", cmap="viridis", interpolation="none")
        axis.set_title(title)
        axis.set_xlabel("head")
        figure.colorbar(image, ax=axis)
        dead = [(head, names.index(layer)) for layer, head in report.dead_heads]
        if dead:
            # white below red, to be seen on every colour and by every eye
            axis.plot(*zip(*dead, strict=True), "wx", markeredgewidth=4)
            axis.plot(*zip(*dead, strict=True), "rx", markeredgewidth=1.5, label="dead head")
    if report.dead_heads:
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower right", frameon=False)
    axes[0].set_ylabel("layer")
    axes[0].set_yticks(range(len(names)), names, fontsize=7)
    if path is not None:
        figure.savefig(path, dpi=110)
    return figure


def plot_associations(
    weights: torch.Tensor,
    path: str | os.PathLike | None = None,
    *,
    query_labels: list[str] | None = None,
    key_labels: list[str] | None = None,
) -> Any:
    """
    The weights of the heads of one layer on one sample. Weights that are exactly zero are white.

    Args:
        weights (`torch.Tensor` of shape `(heads, queries, keys)`): For example `record_associations(...)[name][0]`.
        path (`str`, *optional*): File to save the plot to.
        query_labels (`list[str]`, *optional*): Labels of the queries, such as tokens.
        key_labels (`list[str]`, *optional*): Labels of the keys; defaults to `query_labels`.

    Returns:
        `matplotlib.figure.Figure`: The plot. matplotlib does not keep it.
    """
    if weights.ndim != 3:
        raise ValueError(f"weights must be (heads, queries, keys), of one sample, got shape {tuple(weights.shape)}.")
    figure_class = require("matplotlib.figure", "cli").Figure
    heads, columns = len(weights), min(4, len(weights))
    lines = -(-heads // columns)
    figure = figure_class(figsize=(3.2 * columns, 3.6 * lines), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False)
    values = weights.detach().float().cpu()
    values = values.masked_fill(values == 0, float("nan"))
    for head, axis in enumerate(axes.flat):
        if head >= heads:
            axis.set_visible(False)
            continue
        image = axis.imshow(values[head].numpy(), cmap="viridis_r", vmin=0, vmax=1, interpolation="none")
        axis.set_title(f"head {head}", fontsize=9)
        for labels, place in ((query_labels, axis.set_yticks), (key_labels or query_labels, axis.set_xticks)):
            if labels is not None:
                place(range(len(labels)), labels, fontsize=6)
        if key_labels or query_labels:
            axis.tick_params(axis="x", rotation=90)
        axis.set_xlabel("key")
    for line in axes:
        line[0].set_ylabel("query")
    figure.colorbar(image, ax=axes, shrink=0.8, label="weight (white: exactly zero)")
    if path is not None:
        figure.savefig(path, dpi=110)
    return figure
