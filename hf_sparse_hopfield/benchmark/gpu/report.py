# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The results of a GPU as Markdown and as a plot."""

from pathlib import Path

from ...extras import require
from ..report import table


NAMES = ("triton", "screened", "adasplash", "blocked", "flex")
NO_PROMISES = "The project promises no figures for GPUs: nothing here is met or missed."


def _number(value: float | None, form: str = ".2f") -> str:
    return "" if value is None else format(value, form)


def markdown(results: dict) -> str:
    """The results as Markdown: machine, speed, decodes, memory, what was left out."""
    grouped: dict[tuple, dict[str, dict]] = {}
    for record in results["records"]:
        place = (record["label"], record["alpha"], record["inputs"])
        grouped.setdefault(place, {})[record["method"]] = record
    parts = [
        "\n".join(f"- {name}: {text}" for name, text in results["device"].items()),
        "Figures are the time of torch's SDPA (flash attention where it applies) divided by that of a method: above 1 is faster than "
        "dense. `flex` computes softmax as SDPA does. `tiles` is the share of the visible tiles that the kernels read values for. "
        "`inputs`: sharp, few keys with weight, anywhere; local, neighbouring queries share them; plain, normal numbers. "
        + NO_PROMISES,
    ]
    for title, decode in (("Forward, and training (forward and backward)", False), ("Decode", True)):
        chosen = {place: found for place, found in grouped.items() if place[0].startswith("decode") == decode}
        if chosen:
            parts += [f"## {title}", _speeds(chosen, decode)]
    if any(record["bytes"] is not None for record in results["records"]):
        parts += ["## Peak extra memory in MB", _sizes(grouped)]
    if results["left_out"]:
        rows = [
            [r["label"], _number(r["alpha"], "g"), r["inputs"], r["method"], r["reason"]] for r in results["left_out"]
        ]
        parts += ["## Left out", table(["work", "alpha", "inputs", "method", "reason"], rows)]
    return "\n\n".join(parts) + "\n"


def _speeds(grouped: dict[tuple, dict[str, dict]], decode: bool) -> str:
    names = [name for name in NAMES if any(name in found for found in grouped.values())]
    rows = []
    for (label, alpha, inputs), found in grouped.items():
        any_record, dense = next(iter(found.values())), found.get("sdpa")
        row = [label, f"{alpha:g}", inputs, _number(any_record["mean_support"], ".0f")]
        row.append("" if dense is None else f"{dense['seconds'] * 1e3:.3f} ({dense['kernels']})")
        row += [_number(found[name]["ratio"] if name in found else None) for name in names]
        if decode:
            row.append(_number(1e3 * dense["graph_seconds"] if dense and dense["graph_seconds"] else None, ".3f"))
            row += [_number(found[name]["graph_ratio"] if name in found else None) for name in names]
        else:
            row.append(_number(found["triton"]["tiles"] if "triton" in found else None, ".3f"))
        rows.append(row)
    head = ["work (batch, heads, length, head dim)", "alpha", "inputs", "mean support", "SDPA ms", *names]
    if decode:
        return table([*head, "SDPA ms in a CUDA graph", *(f"{name} in a graph" for name in names)], rows)
    return table([*head, "tiles"], rows)


def _sizes(grouped: dict[tuple, dict[str, dict]]) -> str:
    names = [name for name in ("sdpa", *NAMES) if any(name in found for found in grouped.values())]
    rows = []
    for (label, alpha, inputs), found in grouped.items():
        sizes = [found[name]["bytes"] if name in found else None for name in names]
        rows.append(
            [label, f"{alpha:g}", inputs, *(_number(None if size is None else size / 2**20, ".0f") for size in sizes)]
        )
    return table(["work", "alpha", "inputs", *names], rows)


def plot(results: dict, path: Path) -> None:
    """Draw the ratios against the sizes, and the tiles that are visited."""
    pyplot = require("matplotlib.pyplot", "cli")
    records = results["records"]
    dtype = "bfloat16" if any(record["dtype"] == "bfloat16" for record in records) else "float32"
    records = [record for record in records if record["dtype"] == dtype]
    figure, axes = pyplot.subplots(1, 4, figsize=(22, 5))
    for axis, kind in zip(axes, ("forward", "training", "decode"), strict=False):
        lines: dict[str, list[tuple[str, float]]] = {}
        for record in records:
            usual = record["kind"] == kind and record["inputs"] == "sharp"
            ratio = record["graph_ratio" if kind == "decode" else "ratio"]
            if usual and (record["is_causal"] or kind == "decode") and record["method"] != "sdpa" and ratio:
                name = record["method"] + ("" if record["method"] == "flex" else f", alpha {record['alpha']:g}")
                lines.setdefault(name, []).append((_size(record), ratio))
        for name, points in lines.items():
            axis.semilogy(*zip(*points, strict=True), marker="o", label=name)
        title = f"{kind}, {dtype}: SDPA time / ours" + (" (CUDA graphs)" if kind == "decode" else "")
        _finish(axis, title, "ratio", bool(lines))
    visited: dict[str, list[tuple[str, float]]] = {}
    for record in records:
        if record["tiles"] is not None and record["kind"] == "forward" and record["is_causal"]:
            name = f"{record['inputs']}, alpha {record['alpha']:g}"
            visited.setdefault(name, []).append((_size(record), record["tiles"]))
    for name, points in visited.items():
        axes[3].plot(*zip(*points, strict=True), marker="o", label=name)
    _finish(axes[3], f"tiles visited, {dtype}", "share of the visible tiles", bool(visited))
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _size(record: dict) -> str:
    return f"{record['batch']} x {record['length']} x {record['head_dim']}"


def _finish(axis, title: str, label: str, has_lines: bool) -> None:  # type: ignore[no-untyped-def]
    axis.axhline(1, color="gray", linewidth=0.8)
    axis.set(title=title, ylabel=label)
    axis.tick_params("x", rotation=30)
    if has_lines:
        axis.legend()
