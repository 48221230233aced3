# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Tables, figures and verdicts of the bit-pattern experiment, made from its record alone."""

import statistics
from pathlib import Path
from typing import Any

from reporting import claims, figure, save_figure, select, sign, spread, table, verdict


SIZES = (20, 50, 100, 150, 200, 300)
SHARES = (0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.4, 0.5)
SPARSITY_SIZE = 200
POSITIVES = (1, 2, 10, 20, 40, 80, 100)  # signals per test bag in the generalisation test
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
PAPER_GENERALIZATION = {  # by test positives: D/S for each number of training positives
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

PROTOCOL = """The paper does not say enough to repeat its runs. We follow what it does say: 4 signals, 4 bits, 800 + 200 bags, half of
them positive, AdamW 1e-3, batches of 128, 150 epochs, the last model, scaling 0.25, 8 heads of size 8, dropout 0.5 on the association
matrix, one layer and one linear map. What it leaves open was chosen on S pooling with bags of 20 and 300 (other bags and signals than
those below) and is the same for all models. The choices are therefore tuned for sparse pooling; we did not look for choices that suit
the dense models (see "Is it the temperature?").

- Bits are -1 and 1, without layer norm: a layer norm would remove mean and length of the four bits, and nothing would remain of 1111.
- Linear maps are initialised as in torch, state patterns from N(0, 1). (From N(0, 0.02\u00b2) as in hflayers, accuracy at bag size 300 with
  one state pattern is 68 %, against 78 %; 3 seeds.)
- Pooling has 16 state patterns. A head can find the one pattern that is extreme in its direction, and one state pattern has 8
  directions for 4 signals among 15 patterns: 78 % at bag size 300 (3 seeds). With 8 state patterns it is 97.3 % (4 seeds).
- There is no update before the read-out, although the paper mentions up to 3 steps. (With 8 state patterns and 3 updates: 75.6 % at bag
  size 300, against 97.3 %; 4 seeds.)
- `Hopfield` retrieves with every instance of the bag, and the mean goes into the linear map. Attention has 8 heads, each a network of
  width 64.
- Signals are drawn anew for every seed. Only 103 of the 1365 sets of four can be separated from the other patterns by one linear map of
  the bits.
- Bags are stored as counts of 15 kinds of instances. In training, the dropout of counted instances has (nearly) the same distribution as
  dropout of single instances, but not the same draws: how many of c equal ones stay is one of 1024 equally likely values (exact for c up to
  10), and for `Hopfield` the noise of the mean over the rows is normal with the exact mean and variance. Without dropout, as in the test,
  counting is exact.
"""

TEMPERATURE = """Yes. In the paper's setting dense pooling learns slowly, but it is able to learn. Suppose the score of one signal is g < 1 above that
of n - 1 equal instances. Sparsemax gives it the weight g + (1 - g) / n: about g, however large the bag. Softmax gives it
1 / (1 + (n - 1) exp(-g)). For half of the weight in a bag of 300, its score would have to be 5.7 above the others, but with scaling 0.25
scores start with a standard deviation of about 0.25. The signal is then about 1/300 of what dense pooling reads, and of the gradient. A
larger scaling or more epochs make up for that. The tables above therefore show that at the paper's scaling sparse pooling learns in fewer
epochs and needs only one scaling for all bags. They do not show that it can distinguish what dense pooling cannot. This was only tested for
pooling with bags of 300; for `Hopfield` and other bags we tried no other temperature.
"""


def _accuracy(record: dict[str, Any], model: str, size: int, positives: int) -> list[float]:
    found = select(record, "accuracy", model=model, bag_size=size, positives=positives)
    return found[0] if found else []


def _beside(values: list[float], paper: float) -> str:
    return f"{spread(values)} ({paper:g})" if values else f"- ({paper:g})"


def _positives(share: float) -> int:
    return round(share * SPARSITY_SIZE)


def report(record: dict[str, Any], folder: Path) -> str:
    """Make the section of RESULTS.md and the figures `bit_pattern.png` and `bit_pattern_curves.png`."""
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
            'Accuracy in %, mean \u00b1 standard deviation over the seeds (the paper in brackets). "Clearly" means significant in a '
            "t-test at 5 %, with differences between models paired by seed.\n",
            PROTOCOL,
            f"{_seeds(record)} Without dropout, the logits of the library's own model on whole bags and of the stacked models on "
            f"counts differ by at most {max(differences):.1g}.\n",
            "### Bag size, with one signal in each positive bag\n",
            table(["bag size", *SIZES], sizes),
            "### Share of signals in positive bags of 200\n",
            table(["share", *(f"{100 * share:g} %" for share in SHARES)], shares),
            "The paper has two tables of this, and they disagree. The one in its main text has S pooling at 73.40 for 1 %, and the "
            "same row of D pooling under 1, 5, 10, 20 and 40 %. The brackets show the other one.\n",
            "### Is it the temperature?\n",
            _temperature(record, temperature),
            "### Other numbers of signals in the test\n",
            "Pooling with bags of 200, D / S (the paper in brackets). Rows: signals per test bag; columns: signals per training bag.\n",
            _generalization(record),
            "![accuracy](bit_pattern.png)\n\n![convergence](bit_pattern_curves.png)\n",
            _time(record),
            claims(_claims(record, temperature)),
        ]
    )


def _part(record: dict[str, Any], temperature: bool) -> dict[str, Any]:
    """Select the cells on the temperature, which have a scaling in their settings, or those of the paper's tables."""
    cells = {name: cell for name, cell in record["cells"].items() if ("scaling" in cell["settings"]) == temperature}
    return {**record, "cells": cells}


def _full(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Select the cells with all seeds and epochs."""
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
    """The first epoch with a mean test accuracy of 90 %, among every fifth epoch."""
    return next((epoch for epoch, _, accuracy in curve if accuracy >= 90), None)


def _temperature(record: dict[str, Any], temperature: dict[str, Any]) -> str:
    """Pooling with other scalings or more epochs, after the same bags in the paper's setting."""
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
    header = ["model", "scaling", "epochs", "accuracy", "seeds at 99 %", "epoch with mean 90 %", "training loss"]
    text = f"Bag size {size}, one signal. The scaling is an inverse temperature.\n\n{table(header, rows)}"
    return f"{text}\n{TEMPERATURE}" if _complete(record, temperature) else text


def _generalized(record: dict[str, Any], model: str, train: int, test: int) -> list[float]:
    """Accuracies of pooling trained with `train` signals per positive bag and tested with `test`."""
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
    return table(["signals", *POSITIVES], rows)


def _time(record: dict[str, Any]) -> str:
    """Time taken by the cells with all seeds and epochs."""
    cells = _full(record)
    if not cells:
        return ""
    seconds: dict[str, list[float]] = {}
    for cell in cells:
        seconds.setdefault(cell["settings"]["model"], []).append(cell["result"]["cpu_seconds"])
    text = (
        f"Speed: {len(cells)} of the {CELLS} cells of the two tables (10 seeds, 150 epochs) took "
        f"{sum(map(sum, seconds.values())) / 60:.0f} minutes of CPU time (seconds per cell: "
        + ", ".join(f"{model} {statistics.fmean(values):.0f}" for model, values in seconds.items())
        + f"). Their wall times, on a machine shared with other work, add up to "
        f"{sum(cell['seconds'] for cell in cells) / 60:.0f} minutes; our target is 180 on two cores.\n"
    )
    print(text)
    return text


def _minus(sparse: list[float], dense: list[float]) -> list[float]:
    """Differences by seed; empty if the two do not have the same number of seeds."""
    return [s - d for s, d in zip(sparse, dense, strict=True)] if len(sparse) == len(dense) else []


def _signed(values: list[float]) -> str:
    """Format mean and standard error of differences."""
    text = f"{statistics.fmean(values):+.2f}"
    return text if len(values) < 2 else f"{text} \u00b1 {statistics.stdev(values) / len(values) ** 0.5:.2f}"


def _compared(record: dict[str, Any], kind: str, cells: dict[str, tuple[int, int]]) -> tuple[str, str]:
    """Judge whether sparse is better than dense for these bags (size, signals), and list the differences and the paper's."""
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
    """Explain the verdicts; only for a complete record."""
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
        "More signals get more of the softmax weight, and from 2 % on 150 epochs are enough. Why the paper's dense models do worse "
        "is not known, because the paper leaves much of its setting open."
    )
    return {
        "pooling size": f"D pooling is slow but able to learn: at bag size 300 it reaches {course('D pooling')} and "
        f"{statistics.fmean(tried(0.25)):.1f} % in epoch 600; with scaling 4 instead of 0.25 it reaches "
        f'{statistics.fmean(tried(4.0)):.1f} % in epoch 150 (see "Is it the temperature?"). At bag size 20 there is no difference: the '
        f"paper has S ahead by +0.03, and here S - D is {_signed(at_20)}.",
        "pooling share": f"D pooling does not collapse here: {mean('D pooling', 200, 2):.1f} % at 1 % (paper: 49.2) and "
        f"{mean('D pooling', 200, 4):.1f} % at 2 % (85.6), where the difference is within the spread of the seeds. {more}",
        "Hopfield size": f"Like D pooling, D Hopfield is still improving at the end: at bag size 300 it reaches {course('D Hopfield')}. "
        "Other temperatures and longer training were only tried for pooling.",
        "Hopfield share": f"D Hopfield does not collapse here: {mean('D Hopfield', 200, 2):.1f} % at 1 % (paper: 51.4), "
        f"{mean('D Hopfield', 200, 4):.1f} % at 2 % (57.2) and {mean('D Hopfield', 200, 6):.1f} % at 3 % (75.5), the last two within "
        f"the spread of the seeds. {more}",
        "attention": f"Our baselines are {min(above):.0f} to {max(above):.0f} points above the paper's at every bag size. The paper does "
        "not describe its baselines; ours have 8 heads of width 64, and the bits and training of the other models. They also use softmax and "
        f"are still improving at the end: attention at bag size 300 reaches {course('attention')}.",
        "generalization": "Trained with many signals, neither model finds one or two in the test here, where the paper has S at up to 82 "
        "and 96 %. Our guess is that a threshold on a share of 10 to 50 % signals is enough for such training bags.",
        "convergence": f"This holds at scaling 0.25. At bag size 300, D pooling needs {_reached(tried(4.0, 'curve'))} epochs with scaling 4, "
        f"and S pooling {_reached(tried(1.0, 'curve', 'S pooling'))} with scaling 1.",
    }


def _claims(record: dict[str, Any], temperature: dict[str, Any]) -> list[tuple[str, str, str]]:
    reasons = _reasons(record, temperature)
    by_size = {f"{size}": (size, 1) for size in SIZES}
    by_share = {f"{100 * share:g} %": (SPARSITY_SIZE, _positives(share)) for share in SHARES}
    means = [_mean(_accuracy(record, "S pooling", *bag)) for bag in (by_size | by_share).values()]
    low = [value for value in means if value is not None]
    rows = [
        (
            "S pooling is at (almost) 100 % for every bag size and every share of signals (here: at least 99 %)",
            verdict(None if value is None else value >= 99 for value in means),
            (f"The lowest mean is {min(low):.2f} % (the paper's: 99.68). " if low else "Not run. ")
            + "The open choices were made on this model: at bag size 300 it reaches 78 % with one state pattern instead of 16, and "
            "75.6 % with 3 updates and 8 state patterns.",
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
        "S pooling generalises better than D pooling to other numbers of signals in the test",
        verdict(agree),
        f"S is clearly ahead in {ahead} of {len(agree)} pairs of different numbers and clearly behind in {len(behind)}"
        + (f" (S - D by numbers in training / test: {', '.join(behind)})" if behind else "")
        + f". {sum(part is True for part in agree)} pairs agree with the paper: S is clearly ahead where the paper has it ahead by more than "
        "a point, and not clearly behind elsewhere.",
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
        f"Epochs until the mean test accuracy reaches 90 % (S / D, checked every 5): {'; '.join(listed)}.",
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
