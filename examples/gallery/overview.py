# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The picture of the README: dense and sparse attention of the same head, and speed against length.

python examples/gallery/overview.py --dense path/to/SmolLM2-135M --sparse path/to/converted --layer 17 --head 4
"""

import argparse
import re
from pathlib import Path

import matplotlib
import torch
from matplotlib import pyplot
from matplotlib.colors import LogNorm
from transformers import AutoModelForCausalLM, AutoTokenizer

from hf_sparse_hopfield import to_sparse_hopfield
from hf_sparse_hopfield.diagnostics import record_associations


ROOT = Path(__file__).parents[2]
TEXT = "The library lends books, maps and music. Anna returned the maps on Monday and kept the books for another week."
SMALLEST = 1e-4  # smaller weights have the colour of this one; those that are zero have none
WORKS = {"forward": "forward 1, ", "forward + backward": "training 1, ", "decode": "decode 1, "}


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dense", required=True, help="folder or Hub id of a dense causal language model")
    parser.add_argument("--sparse", required=True, help="the same model, converted")
    parser.add_argument("--layer", type=int, default=17)
    parser.add_argument("--head", type=int, default=4)
    parser.add_argument("--text", default=TEXT, help="what the model reads")
    parser.add_argument(
        "--benchmark",
        type=Path,
        default=ROOT / "examples/benchmarks/results/attention.md",
        help="report of hf-sparse-hopfield bench (default: %(default)s)",
    )
    parser.add_argument("--output", type=Path, default=ROOT / "docs/images/overview.png", help="default: %(default)s")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    """Make the picture."""
    arguments = parse_arguments(argv)
    matplotlib.use("agg")
    tokenizer = AutoTokenizer.from_pretrained(arguments.dense)
    inputs = tokenizer(arguments.text, return_tensors="pt")
    words = [tokenizer.decode(token).strip() for token in inputs["input_ids"][0]]
    dense = to_sparse_hopfield(AutoModelForCausalLM.from_pretrained(arguments.dense), {"alpha": 1.0})
    sparse = AutoModelForCausalLM.from_pretrained(arguments.sparse)

    figure, (left, middle, right) = pyplot.subplots(
        1, 3, figsize=(13, 4.3), width_ratios=(1, 1, 0.9), layout="constrained"
    )
    for axes, model, title in ((left, dense, "dense: softmax"), (middle, sparse, "sparse: entmax 1.5")):
        weights = list(record_associations(model, dict(inputs)).values())[arguments.layer][0, arguments.head]
        image = _show(axes, weights, words)
        axes.set_title(f"{title}, {_share(weights):.0%} of keys have weight", fontsize=10)
    left.set_yticks(range(len(words)), words, fontsize=6)
    figure.colorbar(image, ax=middle, label="weight; white: exactly zero", extend="min", fraction=0.05)
    _show_speed(right, arguments.benchmark.read_text(encoding="utf-8"))
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(arguments.output, dpi=110)


def _show(axes: pyplot.Axes, weights: torch.Tensor, words: list[str]) -> matplotlib.image.AxesImage:
    shown = torch.where(weights > 0, weights.clamp(min=SMALLEST), torch.nan).numpy()
    image = axes.imshow(shown, norm=LogNorm(SMALLEST, 1), cmap="viridis_r")
    axes.set_xticks(range(len(words)), words, fontsize=6, rotation=90)
    axes.set_yticks([])
    return image


def _share(weights: torch.Tensor) -> float:
    """Of the keys that causality shows, the share that has weight."""
    visible = torch.ones_like(weights, dtype=torch.bool).tril()
    return float((weights > 0)[visible].float().mean())


def _show_speed(axes: pyplot.Axes, report: str) -> None:
    for name, begin in WORKS.items():
        rows = re.findall(rf"^\| {re.escape(begin)}(.*?) \| 1\.5 \| 8 \|(.*)\|$", report, re.MULTILINE)
        points: dict[int, float] = {}
        for size, cells in rows:
            if not size.endswith(", 64"):  # causal, or another dtype
                continue
            _, screened, native = (float(cell) if cell.strip() else 0.0 for cell in cells.split("|")[:3])
            # the first table is that of speed, later ones are about memory
            points.setdefault(int(size.split(", ")[-2]), max(screened, native))
        axes.plot(points.keys(), points.values(), marker="o", label=name)
    axes.axhline(1, color="grey", linewidth=1)
    axes.annotate("dense attention (SDPA)", (0.98, 1.06), xycoords=("axes fraction", "data"), ha="right", fontsize=8)
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="keys, of which 8 have weight",
        title="times as fast as dense attention, 2 CPU cores",
    )
    axes.set_xscale("log", base=2)
    ticks = [1, 2, 4, 8, 16]
    axes.set_yticks(ticks, [str(tick) for tick in ticks])
    axes.title.set_fontsize(10)
    axes.legend(frameon=False)


if __name__ == "__main__":
    main()
