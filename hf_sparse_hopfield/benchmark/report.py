# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The results as Markdown and as a plot."""

import argparse
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from ..extras import require


def notes_file(arguments: argparse.Namespace) -> TextIO:
    """Where the command writes what is not JSON: with `--json`, stdout is reserved for the results."""
    if arguments.json:
        return io.StringIO() if arguments.quiet else sys.stderr
    return sys.stdout


def write_results(
    results: dict, folder: Path, name: str, text: str, draw: Callable[[dict, Path], None], out: TextIO
) -> None:
    """
    Write results as JSON, as Markdown and, if matplotlib is installed, as a plot.

    Args:
        results (`dict`): The results.
        folder (`Path`): Where to write; made if it is missing.
        name (`str`): Name of the files without their ending.
        text (`str`): The results as Markdown.
        draw (`Callable`): Draws the results into a file.
        out (`TextIO`): Where to say so.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(results, indent=1))
    (folder / f"{name}.md").write_text(text)
    written = f"{name}.json and .md"
    try:
        draw(results, folder / f"{name}.png")
        written = f"{name}.json, .md and .png"
    except ImportError as error:
        print(f"no plot: {error}", file=out)
    print(f"written to {folder}: {written}", file=out)


def table(head: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def markdown(results: dict) -> str:
    """The results as Markdown: speed, memory, cost against length, promises."""
    names = ["screened", "native", "unscreened", "blocked", "auto", "eager softmax", "entmax"]
    grouped: dict[tuple, dict[str, dict]] = {}
    for record in results["records"]:
        place = (record["label"], record["alpha"], record["support"])
        grouped.setdefault(place, {})[record["method"]] = record
    rows = []
    for (label, alpha, support), by_name in grouped.items():
        row = [label, f"{alpha:g}", str(support or "all"), f"{by_name['sdpa']['seconds'] * 1e3:.2f}"]
        rows.append(row + [f"{by_name[name]['ratio']:.2f}" if name in by_name else "" for name in names])
    parts = [
        f"Machine: {results['machine']}. Figures are the time of torch's SDPA divided by ours: above 1 is faster than dense. "
        "`screened` has an int8 copy of the keys from before, as a cache has; `native` makes one where that pays.",
        table(["work (batch, heads, length, head dim)", "alpha", "support", "SDPA ms", *names], rows),
    ]
    if results["memory"]:
        rows = [
            [r["kind"], str(r["length"]), r["method"], "?" if r["bytes"] is None else f"{r['bytes'] / 2**20:.0f}"]
            for r in results["memory"]
        ]
        parts.append(table(["peak extra memory", "length", "method", "MB"], rows))
    if results.get("reads"):
        rows = [
            [
                r["label"],
                f"{r['alpha']:g}",
                str(r["support"] or "all"),
                f"{r['bytes'] / 2**20:.2f}",
                f"{r['share']:.2f}",
            ]
            + [f"{r['scored']:.1f}", f"{r['read']:.1f}"]
            for r in results["reads"]
        ]
        head = [
            "read for a token",
            "alpha",
            "support",
            "MB",
            "of the int8 keys",
            "keys scored a row",
            "values read a row",
        ]
        parts.append(table(head, rows))
    if results.get("search"):
        rows = [
            [
                r["label"],
                f"{r['alpha']:g}",
                f"{r['faiss'] * 1e3:.1f}",
                f"{r['torch'] * 1e3:.1f}",
                f"{r['seconds'] * 1e3:.1f}",
                f"{r['ratio']:.1f}",
                f"{r['torch'] / r['seconds']:.1f}",
            ]
            for r in results["search"]
        ]
        parts.append(
            table(
                ["memory", "alpha", "faiss IndexFlatIP ms", "torch ms", "ours ms", "faiss / ours", "torch / ours"],
                rows,
            )
        )
    rows = [
        [
            bar["text"],
            bar["promised"],
            "" if bar["measured"] is None else f"{bar['measured']:.2f}",
            {True: "met", False: "**missed**", None: "" if bar["measured"] else "not measured"}[bar["met"]],
            bar["where"],
        ]
        for bar in results["bars"]
    ]
    parts.append(table(["target", "bound", "worst measured", "result", "where"], rows))
    return "\n\n".join(parts) + "\n"


def plot(results: dict, path: Path) -> None:
    """Draw cost against length, and the ratio against the size of the support."""
    pyplot = require("matplotlib.pyplot", "cli")
    figure, axes = pyplot.subplots(1, 4, figsize=(20, 4.5))
    for axis, kind in zip(axes, ("forward", "training"), strict=False):
        by_name: dict[str, list[tuple[int, float]]] = {}
        for record in results["lengths"]:
            if record["kind"] == kind:
                by_name.setdefault(record["method"], []).append((record["length"], record["seconds"] * 1e3))
        for name, points in by_name.items():
            axis.loglog(*zip(*sorted(points), strict=True), marker="o", label=name)
        axis.set(title=f"{kind}, causal, alpha 2", xlabel="length", ylabel="ms")
        if by_name:
            axis.legend()
    for kind in ("forward", "training"):
        points = [
            ((record["support"] or record["length"]) / record["length"], record["ratio"])
            for record in results["records"]
            if record["method"] == "auto" and record["kind"] == kind
        ]
        if points:
            axes[2].semilogx(*zip(*sorted(points), strict=True), "o", label=kind)
    for name in ("screened", "unscreened"):
        for alpha, line in ((2.0, "-"), (1.5, "--")):
            points = [
                (record["length"], record["ratio"])
                for record in results["records"]
                if record["kind"] == "decode" and record["method"] == name and record["support"] == 8
                if record["alpha"] == alpha and record["dtype"] == "float32"
            ]
            if points:
                axes[3].loglog(*zip(*sorted(points), strict=True), line, marker="o", label=f"{name}, alpha {alpha:g}")
    axes[3].axhline(1, color="gray", linewidth=0.8)
    axes[3].set(title="decode: SDPA time / ours", xlabel="keys", ylabel="ratio")
    if axes[3].lines[1:]:
        axes[3].legend()
    axes[2].axhline(1, color="gray", linewidth=0.8)
    axes[2].set(title="auto: SDPA time / ours", xlabel="support / keys", ylabel="ratio")
    axes[2].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
