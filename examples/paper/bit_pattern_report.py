# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Tables, plots and verdicts of the bit-pattern experiment, from its record alone."""

import statistics
from pathlib import Path
from typing import Any

from harness import claims, figure, save_figure, select, sign, spread, table, verdict


SIZES = (20, 50, 100, 150, 200, 300)
SHARES = (0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.4, 0.5)
SPARSITY_SIZE = 200
POSITIVES = (1, 2, 10, 20, 40, 80, 100)  # of the test of generalisation
CELLS = 6 * (len(SIZES) + len(SHARES))

PAPER_SIZES = {
    "S pooling": (99.71, 100, 100, 99.76, 99.76, 99.76),
    "D pooling": (99.68, 100, 100, 76.44, 49.13, 52.88),
    "S Hopfield": (98.82, 99.45, 97.13, 95.98, 94.17, 90.15),
    "D Hopfield": (99.65, 99.51, 53.90, 49.51, 51.92, 53.83),
    "attention": (87.01, 74.51, 45.19, 53.75, 46.63, 53.36),
    "gated attention": (87.88, 63.44, 75.38, 73.45, 71.05, 49.61),
}
PAPER_SHARES = {
    "S pooling": (99.76, 99.68, 100, 100, 100, 100, 100, 100),
    "D pooling": (49.20, 85.58, 100, 100, 99.68, 100, 100, 100),
    "S Hopfield": (95.62, 95.98, 99.68, 100, 100, 100, 100, 100),
    "D Hopfield": (51.44, 57.21, 75.48, 99.03, 99.51, 100, 100, 100),
    "attention": (74.51, 78.81, 96.63, 100, 99.51, 100, 100, 100),
    "gated attention": (78.94, 95.28, 98.55, 99.03, 100, 100, 100, 100),
}
PAPER_GENERALIZATION = {  # test positives: (D, S) for each number of training positives
    1: "46.63/99.76 48.55/94.31 53.84/74.52 59.61/81.73 66.82/81.25 72.07/81.73 72.59/81.25",
    2: "47.59/52.40 51.44/98.18 58.17/95.19 62.01/95.67 69.23/95.67 72.59/95.67 72.11/95.67",
    10: " ".join(["99.51/100"] * 7),
    20: " ".join(["100/100"] * 7),
    40: " ".join(["100/100"] * 7),
    80: "100/97.03 " + " ".join(["100/100"] * 6),
    100: " ".join(["100/100"] * 7),
}
COLORS = dict(
    zip(PAPER_SIZES, ("tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple", "tab:brown"), strict=True)
)

PROTOCOL = """The paper does not say enough to repeat its runs. What it says, we do: 4 signals, 4 bits, 800 + 200 bags, half of
them positive, AdamW 1e-3, batches of 128, 150 epochs, last model, scaling 0.25, 8 heads of size 8, dropout 0.5 on the association
matrix, one layer and one linear map. What it leaves open was chosen on S pooling with bags of 20 and 300 (other bags and
signals than those below), and is equal for all models. Equal means tuned for sparse pooling: what would suit the dense models was
not looked for (see "Is it the temperature?").

- Bits are -1 and 1, no layer norm: it would take mean and length from four bits, and leave nothing of 1111.
- Linear maps begin as in torch, state patterns from N(0, 1). (From N(0, 0.02\u00b2) as in hflayers: 68 % at bag size 300 with one
  state pattern, 3 seeds, against 78 %.)
- Pooling has 16 state patterns. A head can find the one pattern that is extreme in its direction, and one state pattern has 8
  directions for 4 signals among 15 patterns: 78 % at bag size 300 (3 seeds); 8 state patterns: 97.3 % (4 seeds).
- No update before the read-out, though the paper says up to 3 steps. (With 8 state patterns and 3 updates: 75.6 % at bag size 300,
  4 seeds, against 97.3 %.)
- `Hopfield` retrieves with every instance of the bag, and their mean goes into the linear map; attention has 8 heads of one network
  of width 64.
- Signals are drawn anew for every seed. Only 103 of the 1365 sets of four can be told from the other patterns by one linear map
  of the bits.
- Bags are counts of 15 kinds of instances. In training the dropout of counted instances has (nearly) the same distribution, not the
  same draws: how many of c equal ones stay is one of 1024 equally likely values (exact for c up to 10), and for `Hopfield` the noise of
  the mean over the rows is normal with the exact mean and variance. Without dropout, as in the test, counting approximates nothing.
"""

TEMPERATURE = """It is: in the paper's setting dense pooling learns slowly; it is not unable to. Where the score of one signal is g < 1 above that of
n - 1 equal instances, sparsemax gives it the weight g + (1 - g) / n: about g, however large the bag. Softmax gives it
1 / (1 + (n - 1) exp(-g)): for half of the weight in a bag of 300 the score must be 5.7 above the others, and with scaling 0.25 scores
begin with a standard deviation of about 0.25. The signal is then about 1/300 of what dense pooling reads, and of the gradient. A
larger scaling or more epochs make up for it. So the tables above say that at the paper's scaling sparse pooling learns in fewer
epochs and gets by with one scaling for all bags, not that it can tell what dense pooling cannot. This is pooling with bags of 300
only: for `Hopfield` and other bags no other temperature was tried.
"""


def _accuracy(record: dict[str, Any], model: str, size: int, positives: int) -> list[float]:
    found = select(record, "accuracy", model=model, bag_size=size, positives=positives)
    return found[0] if found else []


def _beside(values: list[float], paper: float) -> str:
    return f"{spread(values)} ({paper:g})" if values else f"- ({paper:g})"


def _positives(share: float) -> int:
    return round(share * SPARSITY_SIZE)


def report(record: dict[str, Any], folder: Path) -> str:
    """Markdown, and the pictures `bit_pattern.png` and `bit_pattern_curves.png`."""
    differences = [result["difference"] for result in select(record)]
    record, temperature = _part(record, temperature=False), _part(record, temperature=True)
    sizes = [
        [model, *(_beside(_accuracy(record, model, size, 1), value) for size, value in zip(SIZES, paper, strict=True))]
        for model, paper in PAPER_SIZES.items()
    ]
    shares = [
        [
            model,
            *(
                _beside(_accuracy(record, model, SPARSITY_SIZE, _positives(share)), value)
                for share, value in zip(SHARES, paper, strict=True)
            ),
        ]
        for model, paper in PAPER_SHARES.items()
    ]
    _plots(record, folder)
    return "\n".join(
        [
            "## 2. Bit patterns: multiple-instance learning\n",
            'Accuracy in %, mean \u00b1 standard deviation over the seeds (in brackets: the paper). "Clearly" is a t-test '
            "at 5 %, differences of models paired by seed.\n",
            PROTOCOL,
            f"{_seeds(record)} The library's own model, given whole bags, and the stacked models on counts differ by at most "
            f"{max(differences):.1g} in a logit (without dropout).\n",
            "### Bag size, one signal in a positive bag\n",
            table(["bag size", *SIZES], sizes),
            "### Share of signals in a positive bag of 200\n",
            table(["share", *(f"{100 * share:g} %" for share in SHARES)], shares),
            "The paper has two tables of this that disagree. Its main text has S pooling at 73.40 for 1 %, and the same row of "
            "D pooling under 1, 5, 10, 20 and 40 %; in brackets is the other one.\n",
            "### Is it the temperature?\n",
            _temperature(record, temperature),
            "### Other numbers of signals in the test (pooling, bag size 200; D / S, in brackets: the paper)\n",
            _generalization(record),
            "![accuracy](bit_pattern.png)\n\n![convergence](bit_pattern_curves.png)\n",
            _time(record),
            claims(_claims(record, temperature)),
        ]
    )


def _part(record: dict[str, Any], temperature: bool) -> dict[str, Any]:
    """The cells on the temperature, which have a scaling among their settings, or those of the paper's tables."""
    cells = {name: cell for name, cell in record["cells"].items() if ("scaling" in cell["settings"]) == temperature}
    return {**record, "cells": cells}


def _full(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Cells of full size."""
    return [
        cell
        for cell in record["cells"].values()
        if not cell["quick"] and (cell["settings"]["seeds"], cell["settings"]["epochs"]) == (10, 150)
    ]


def _complete(record: dict[str, Any], temperature: dict[str, Any]) -> bool:
    return len(_full(record)) == CELLS and len(temperature["cells"]) == 4


def _seeds(record: dict[str, Any]) -> str:
    seeds = sorted({cell["settings"]["seeds"] for cell in record["cells"].values()})
    epochs = sorted({cell["settings"]["epochs"] for cell in record["cells"].values()})
    return f"Seeds: {', '.join(map(str, seeds))}; epochs: {', '.join(map(str, epochs))}."


def _reached(curve: list[list[float]]) -> int | None:
    """The first epoch, of every fifth, with a mean test accuracy of 90 %."""
    return next((epoch for epoch, _, accuracy in curve if accuracy >= 90), None)


def _temperature(record: dict[str, Any], temperature: dict[str, Any]) -> str:
    """Pooling with other scalings or more epochs, below the same bags in the paper's setting."""
    if not temperature["cells"]:
        return "Not run.\n"
    size = next(iter(temperature["cells"].values()))["settings"]["bag_size"]
    same = {"bag_size": size, "positives": 1}
    cells = [
        cell
        for cell in record["cells"].values()
        if "pooling" in cell["settings"]["model"] and same.items() <= cell["settings"].items()
    ]
    rows = [
        [
            cell["settings"]["model"],
            f"{cell['settings'].get('scaling', 0.25):g}",
            cell["settings"]["epochs"],
            spread(cell["result"]["accuracy"]),
            f"{sum(accuracy >= 99 for accuracy in cell['result']['accuracy'])} of {cell['settings']['seeds']}",
            _reached(cell["result"]["curve"]) or "never",
            f"{cell['result']['curve'][-1][1]:.3f}",
        ]
        for cell in [*cells, *temperature["cells"].values()]
    ]
    header = ["model", "scaling", "epochs", "accuracy", "seeds at 99 %", "epoch of mean 90 %", "training loss"]
    text = f"Bag size {size}, one signal; the scaling is an inverse temperature.\n\n{table(header, rows)}"
    return f"{text}\n{TEMPERATURE}" if _complete(record, temperature) else text


def _generalized(record: dict[str, Any], model: str, train: int, test: int) -> list[float]:
    """Accuracies with `test` signals in a positive test bag, of pooling that was trained with `train`."""
    found = select(record, "generalization", model=model, bag_size=SPARSITY_SIZE, positives=train)
    return found[0][str(test)] if found else []


def _generalization(record: dict[str, Any]) -> str:
    rows = []
    for test in POSITIVES:
        row: list[str] = [str(test)]
        for train, paper in zip(POSITIVES, PAPER_GENERALIZATION[test].split(), strict=True):
            ours = (spread(_generalized(record, model, train, test)) for model in ("D pooling", "S pooling"))
            row.append(f"{' / '.join(ours)} ({paper})")
        rows.append(row)
    return table(["test \\ train", *POSITIVES], rows)


def _time(record: dict[str, Any]) -> str:
    """What the cells of full size took."""
    cells = _full(record)
    if not cells:
        return ""
    seconds: dict[str, list[float]] = {}
    for cell in cells:
        seconds.setdefault(cell["settings"]["model"], []).append(cell["result"]["cpu_seconds"])
    text = (
        f"Speed: {len(cells)} of the {CELLS} cells of the two tables (10 seeds, 150 epochs) took "
        f"{sum(map(sum, seconds.values())) / 60:.0f} minutes of CPU time (seconds of a cell: "
        + ", ".join(f"{model} {statistics.fmean(values):.0f}" for model, values in seconds.items())
        + f"). The sum of their wall times, with whatever else ran on the machine, is "
        f"{sum(cell['seconds'] for cell in cells) / 60:.0f} minutes; our bar is 180 on two cores.\n"
    )
    print(text)
    return text


def _minus(sparse: list[float], dense: list[float]) -> list[float]:
    """Seed by seed; nothing if not both were run with these seeds."""
    return [s - d for s, d in zip(sparse, dense, strict=True)] if len(sparse) == len(dense) else []


def _signed(values: list[float]) -> str:
    """Mean and standard error of differences."""
    text = f"{statistics.fmean(values):+.2f}"
    return text if len(values) < 2 else f"{text} \u00b1 {statistics.stdev(values) / len(values) ** 0.5:.2f}"


def _compared(record: dict[str, Any], kind: str, cells: dict[str, tuple[int, int]]) -> tuple[str, str]:
    """Verdict on "sparse is better than dense" in these bags (size, signals), and the differences beside the paper's."""
    agree: list[bool | None] = []
    listed = []
    for name, (size, positives) in cells.items():
        found = _minus(*(_accuracy(record, f"{letter} {kind}", size, positives) for letter in "SD"))
        agree.append(sign(found) == 1 if found else None)
        if found:
            theirs = [_paper(f"{letter} {kind}", size, positives) for letter in "SD"]
            listed.append(f"{name}: {_signed(found)} ({theirs[0] - theirs[1]:+.2f})")
    return verdict(agree), f"S - D \u00b1 standard error (paper): {', '.join(listed)}." if listed else "Not run."


def _paper(model: str, size: int, positives: int) -> float:
    if positives == 1:
        return PAPER_SIZES[model][SIZES.index(size)]
    return PAPER_SHARES[model][SHARES.index(positives / size)]


def _reasons(record: dict[str, Any], temperature: dict[str, Any]) -> dict[str, str]:
    """What we say about the claims, of a complete record only."""
    if not _complete(record, temperature):
        return {}

    def mean(model: str, size: int, positives: int = 1) -> float:
        return statistics.fmean(_accuracy(record, model, size, positives))

    def course(model: str) -> str:
        """The mean test accuracy at bag size 300 in the second half."""
        (curve,) = select(record, "curve", model=model, bag_size=300, positives=1)
        return ", ".join(
            f"{accuracy:.1f} % in epoch {epoch}" for epoch, _, accuracy in curve if epoch in (90, 120, 150)
        )

    def tried(scaling: float, key: str = "accuracy", model: str = "D pooling") -> list[Any]:
        return select(temperature, key, model=model, scaling=scaling)[0]

    at_20 = _minus(_accuracy(record, "S pooling", 20, 1), _accuracy(record, "D pooling", 20, 1))
    above = [
        mean(model, size) - _paper(model, size, 1) for model in ("attention", "gated attention") for size in SIZES
    ]
    more = (
        "More signals have more of a softmax's weight, and from 2 % on 150 epochs are enough for it. What keeps the paper's dense models "
        "down there is not known: it leaves much of its setting open."
    )
    return {
        "pooling size": f"D pooling is slow, not unable: at bag size 300 it is at {course('D pooling')}, "
        f"{statistics.fmean(tried(0.25)):.1f} % in epoch 600; with scaling 4 in place of 0.25 it is at {statistics.fmean(tried(4.0)):.1f} % "
        'in epoch 150 (see "Is it the temperature?"). At bag size 20 the paper has S ahead too: +0.03 there, '
        f"{_signed(at_20)} here: no difference either way.",
        "pooling share": f"D pooling does not collapse here: {mean('D pooling', 200, 2):.1f} % at 1 % (paper: 49.2) and "
        f"{mean('D pooling', 200, 4):.1f} % at 2 % (85.6), where the difference is within the noise of seeds. {more}",
        "Hopfield size": f"As D pooling, D Hopfield still rises at the end: at bag size 300 it is at {course('D Hopfield')}. Other "
        "temperatures and longer training were tried for pooling only.",
        "Hopfield share": f"D Hopfield does not collapse here: {mean('D Hopfield', 200, 2):.1f} % at 1 % (paper: 51.4), "
        f"{mean('D Hopfield', 200, 4):.1f} % at 2 % (57.2) and {mean('D Hopfield', 200, 6):.1f} % at 3 % (75.5), the last two within "
        f"the noise of seeds. {more}",
        "attention": f"Our baselines are {min(above):.0f} to {max(above):.0f} points above the paper's at every bag size. It does not say "
        "how its own were made; ours have 8 heads of width 64, and bits and training as the other models. They too are softmax and still "
        f"rise at the end: attention at bag size 300 is at {course('attention')}.",
        "generalization": "Trained with many signals, neither finds one or two in the test here, where the paper has S at up to 82 "
        "and 96 %. Our guess: a threshold on a share of 10 to 50 % signals is all that such training bags ask for.",
        "convergence": f"At scaling 0.25, that is: at bag size 300 D pooling needs {_reached(tried(4.0, 'curve'))} epochs with scaling 4, "
        f"S pooling {_reached(tried(1.0, 'curve', 'S pooling'))} with scaling 1.",
    }


def _claims(record: dict[str, Any], temperature: dict[str, Any]) -> list[tuple[str, str, str]]:
    reasons = _reasons(record, temperature)
    by_size = {f"{size}": (size, 1) for size in SIZES}
    by_share = {f"{100 * share:g} %": (SPARSITY_SIZE, _positives(share)) for share in SHARES}
    means = [_mean(_accuracy(record, "S pooling", *bag)) for bag in (by_size | by_share).values()]
    low = [value for value in means if value is not None]
    rows = [
        (
            "S pooling is at (almost) 100 % for every bag size and every share of signals (our bar: 99 %)",
            verdict(None if value is None else value >= 99 for value in means),
            (f"Lowest mean {min(low):.2f} % (the paper's: 99.68). " if low else "Not run. ")
            + "The open choices were made on this model: with one state pattern in place of 16 it is at 78 % at bag size 300, with 3 "
            "updates and 8 state patterns at 75.6 %.",
        )
    ]
    for kind, first, last in (("pooling", "150", "2 %"), ("Hopfield", "100", "3 %")):
        large = {name: bag for name, bag in by_size.items() if int(name) >= int(first)}
        few = dict(list(by_share.items())[: list(by_share).index(last) + 1])
        for claim, cells, key in (
            (f"from bag size {first} on", large, f"{kind} size"),
            (f"with up to {last} signals in a bag of 200", few, f"{kind} share"),
        ):
            found, listed = _compared(record, kind, cells)
            claim = f"S {kind} is better than D {kind} {claim}"
            rows.append((claim, found, f"{listed} {reasons.get(key, '')}".rstrip()))
    for claim, found, listed, key in (
        (*_attention(record), "attention"),
        (*_generalization_claim(record), "generalization"),
        (*_convergence(record), "convergence"),
    ):
        rows.append((claim, found, f"{listed} {reasons.get(key, '')}".rstrip()))
    return rows


def _attention(record: dict[str, Any]) -> tuple[str, str, str]:
    found = {
        model: {size: _accuracy(record, model, size, 1) for size in SIZES}
        for model in ("attention", "gated attention")
    }
    below = {
        f"{model} {size}": sign([90 - value for value in values]) == 1 if values else None
        for model, sizes in found.items()
        for size, values in sizes.items()
    }
    listed = [
        f"{model} " + ", ".join(f"{size}: {statistics.fmean(values):.1f}" for size, values in sizes.items() if values)
        for model, sizes in found.items()
    ]
    clear = ", ".join(name for name, agrees in below.items() if agrees) or "none"
    return (
        "attention and gated attention stay below 90 % at every bag size",
        verdict(below.values()),
        f"{'; '.join(listed)}. Clearly below 90 %: {clear}.",
    )


def _generalization_claim(record: dict[str, Any]) -> tuple[str, str, str]:
    agree: list[bool | None] = []
    ahead, behind = 0, []
    for test in POSITIVES:
        for train, paper in zip(POSITIVES, PAPER_GENERALIZATION[test].split(), strict=True):
            if train == test:
                continue
            found = _minus(*(_generalized(record, f"{letter} pooling", train, test) for letter in "SD"))
            if not found:
                agree.append(None)
                continue
            dense, sparse = map(float, paper.split("/"))
            agree.append(sign(found) == 1 if sparse - dense > 1 else sign(found) >= 0)
            ahead += sign(found) == 1
            if sign(found) == -1:
                behind.append(f"{train} / {test}: {_signed(found)}")
    return (
        "S pooling takes other numbers of signals in the test better than D pooling",
        verdict(agree),
        f"S is clearly ahead in {ahead} of {len(agree)} pairs of different numbers, clearly behind in {len(behind)}"
        + (f" (trained / tested with, S - D: {', '.join(behind)})" if behind else "")
        + f". {sum(part is True for part in agree)} pairs agree, that is S is clearly ahead where the paper has it ahead by more than a "
        "point, and not clearly behind elsewhere.",
    )


def _convergence(record: dict[str, Any]) -> tuple[str, str, str]:
    agree: list[bool | None] = []
    listed = []
    for kind in ("pooling", "Hopfield"):
        pairs = []
        for size in SIZES:
            curves = [select(record, "curve", model=f"{letter} {kind}", bag_size=size, positives=1) for letter in "SD"]
            if not all(curves):
                agree.append(None)
                continue
            sparse, dense = (_reached(curve) for (curve,) in curves)
            agree.append(sparse is not None and (dense is None or sparse < dense))
            pairs.append(f"{size}: {sparse or 'never'} / {dense or 'never'}")
        listed.append(f"{kind} {', '.join(pairs) or 'not run'}")
    return (
        "sparse models converge faster",
        verdict(agree),
        f"Epochs until the mean test accuracy is 90 % (S / D, looked at every 5): {'; '.join(listed)}.",
    )


def _mean(values: list[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _plots(record: dict[str, Any], folder: Path) -> None:
    made, axes = figure(columns=2)
    panels = (
        (axes[0][0], "bag size", [(size, size, 1) for size in SIZES], PAPER_SIZES),
        (
            axes[0][1],
            "signals in a bag of 200, %",
            [(100 * s, SPARSITY_SIZE, _positives(s)) for s in SHARES],
            PAPER_SHARES,
        ),
    )
    for axis, label, cells, paper in panels:
        for model, color in COLORS.items():
            points = [(x, _mean(_accuracy(record, model, size, positives))) for x, size, positives in cells]
            points = [(x, y) for x, y in points if y is not None]
            if points:
                axis.plot(*zip(*points, strict=True), "o-", color=color, label=model, markersize=3)
            axis.plot([x for x, *_ in cells], paper[model], ":", color=color, linewidth=0.8)
        axis.set(xlabel=label, ylabel="accuracy, %", xscale="log")
    axes[0][0].set_title("dotted: the paper", fontsize=8)
    axes[0][0].legend(fontsize=6)
    save_figure(made, folder / "bit_pattern.png")
    made, axes = figure(columns=len(SIZES), lines=2, width=2.2, height=2.2)
    for (upper, lower), size in zip(axes.T, SIZES, strict=True):
        for model, color in COLORS.items():
            for curve in select(record, "curve", model=model, bag_size=size, positives=1):
                epochs, loss, accuracy = zip(*curve, strict=True)
                upper.plot(epochs, accuracy, color=color, label=model)
                lower.plot(epochs, loss, color=color)
        upper.set_title(f"bag size {size}", fontsize=8)
        upper.set(ylim=(40, 102))
        lower.set(ylim=(-0.02, 0.75), xlabel="epoch")
    axes[0][0].legend(fontsize=5)
    axes[0][0].set(ylabel="test accuracy, %")
    axes[1][0].set(ylabel="training loss")
    save_figure(made, folder / "bit_pattern_curves.png")
