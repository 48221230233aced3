# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Tables, plot and verdicts of the multiple-instance benchmarks, from their record alone."""

import math
import statistics
from pathlib import Path
from typing import Any

from harness import claims, figure, save_figure, select, sign, spread, table, verdict
from multiple_instance_settings import (
    CLIP,
    DATASETS,
    EPOCHS,
    FIXED,
    GRID,
    MODELS,
    NESTED,
    SELECTION_FOLDS,
    TRAINING,
    WIDE,
    WIDE_REPEATS,
    WIDER,
)


PAPER = {
    "D Hopfield": {"Tiger": (0.878, 0.028), "Fox": (0.600, 0.011), "Elephant": (0.907, 0.022), "UCSB": (0.880, 0.013)},
    "S Hopfield": {"Tiger": (0.892, 0.021), "Fox": (0.611, 0.010), "Elephant": (0.912, 0.016), "UCSB": (0.877, 0.009)},
    "D pooling": {"Tiger": (0.871, 0.014), "Fox": (0.637, 0.035), "Elephant": (0.876, 0.015), "UCSB": (0.828, 0.068)},
    "S pooling": {"Tiger": (0.884, 0.007), "Fox": (0.610, 0.033), "Elephant": (0.914, 0.016), "UCSB": (0.796, 0.107)},
}
# Other methods in the paper's table, which it takes from elsewhere; we have not run them.
PAPER_OTHERS = {
    "Path encoding": {"Tiger": 0.910, "Fox": 0.712, "Elephant": 0.944, "UCSB": 0.880},
    "MInD": {"Tiger": 0.853, "Fox": 0.704, "Elephant": 0.936, "UCSB": 0.831},
    "MILES": {"Tiger": 0.872, "Fox": 0.738, "Elephant": 0.927, "UCSB": 0.833},
}


def report(record: dict[str, Any], folder: Path) -> str:
    """Markdown and the picture `multiple_instance.png`."""
    found = {
        (dataset, model): result
        for dataset in [*DATASETS, WIDE, *NESTED.values(), "generated", "generated-nested"]
        for model in MODELS
        for result in select(record, dataset=dataset, model=model)
    }
    _plot(found, folder)
    settings = [cell["settings"] for cell in record["cells"].values()]
    seeds = ", ".join(sorted({str(each["seeds"]) for each in settings if not each["dataset"].endswith("-nested")}))
    text = f"""## 3. Multiple-instance benchmarks

### One choice of hyperparameters, as in the paper

ROC-AUC, mean ± standard deviation over {seeds} seeds of the mean over ten folds (in brackets: the paper).

{_table_of_one_choice(found)}
Ten-fold stratified cross-validation, other folds and initial weights for each seed; a tenth of the training folds held
out for validation; standardised on the training bags of the fold, and clipped at {CLIP:g} standard deviations (below); Adam, {EPOCHS} epochs. Chosen once for each data set and model, by
{SELECTION_FOLDS}-fold cross-validation within the nine training folds of the first fold of the first seed (the paper has one split):
{_listed(GRID)}. Fixed, for want of time, where the paper searches too: batch {TRAINING["batch"]},
learning rate {TRAINING["learning_rate"]:g} with decay {TRAINING["decay"]}, {FIXED["embedding_layers"]} embedding layer of width {FIXED["embedding_size"]}, {FIXED["num_heads"]} heads of size {FIXED["head_size"]}.
This is the paper's rule, and it leaks: nine tenths of all bags take part in the choice, and are test bags of the other folds and seeds.

UCSB's two Hopfield models came out below the paper's spread that way, and were run again with the rest of the paper's grid. The
wider search starts from the best of the choices above and then sets, one after the other, each of these to its best value:
{_listed(WIDER)}. Every choice is judged by {WIDE_REPEATS} ten-fold cross-validations within the same nine folds.
The folds it is tested on are those of the first run, whose AUC was known when the search was made wider.
How little such a choice says on so few bags: an earlier search for D Hopfield, alike but for the random numbers of its dropout and
stopped before decay and batch, had come to width 128 and 12 heads of size 32, with a test AUC of .856 ± .043 over the five seeds.

The paper stops early on validation AUC; its published code does not (it never raises the best AUC it compares with, and so
reports the last epoch it runs), and neither do we: the best of 50 epochs on 18 validation bags is mostly luck (Tiger, first seed, all ten folds:
S pooling .854 with the best epoch and .883 with the last, D pooling .872 and .881. These test scores were seen
before the rules were made, and so were, on Tiger with five seeds and choice by five random splits instead of cross-validation, .838 of D
pooling with the best epoch and .831 of S pooling with the last; no others were).

Clipping was chosen for all models and sets on validation bags, with S pooling and bag dropout 0.75 (mean AUC of three ten-fold
cross-validations within the nine training folds of the first fold): Tiger .848 without and .908 with it (scaling 0.1), .851 and .912
(scaling 1), Fox .574 and .684, UCSB .846 and .865. Without clipping, Tiger's test folds gave D pooling .855 and S pooling .847 (five seeds).

Chosen:

{_table_of_choices(found)}
### Nested: a choice for every fold, without its bags

ROC-AUC of the ten folds of the first seed, mean ± standard error over the folds (in brackets: the first seed of the table above, on the same
folds). Each fold chooses from the grid ({_listed(GRID)}) by models that are trained without it and without one of three other folds, on which they are
judged; then it trains on the same bags as above. Only the clipping was decided once for all, as said there. (The choices are those of a first
run, which then trained on the held-out bags as well; these AUCs were made again from the stored choices.)

{_table_of_nested(found)}
{_leak(found)}
![AUC](multiple_instance.png)

"""
    return text + claims(_claims(found))


def _table_of_one_choice(found: dict[tuple[str, str], dict[str, Any]]) -> str:
    rows = []
    for model, paper in PAPER.items():
        row = [model]
        for dataset in [*DATASETS, WIDE]:
            ours = found.get((dataset, model))
            mean, deviation = paper[dataset.removesuffix("-wider")]
            row.append(f"{spread(ours['auc'], 3) if ours else '-'} ({mean:.3f} ± {deviation:.3f})")
        rows.append(row)
    for method, paper in PAPER_OTHERS.items():
        rows.append([method, *(f"- ({paper[dataset]:.3f})" for dataset in DATASETS), f"- ({paper['UCSB']:.3f})"])
    return table(["method", *DATASETS, WIDE], rows)


def _table_of_choices(found: dict[tuple[str, str], dict[str, Any]]) -> str:
    defaults = FIXED | TRAINING
    rows = []
    for (dataset, model), result in found.items():
        if "choice" in result:
            choice = result["choice"]
            others = {name: value for name, value in choice.items() if name not in GRID and value != defaults[name]}
            tried = [entry["validation"] for entry in result["selection"]]
            rows.append([dataset, model, *(choice[name] for name in GRID)])
            rows[-1] += [", ".join(f"{name} {value:g}" for name, value in others.items()) or "-", len(tried)]
            rows[-1] += [f"{min(tried):.3f} to {max(tried):.3f}"]
    return table(["data", "model", *GRID, "other than fixed", "choices", "their validation AUC"], rows)


def _table_of_nested(found: dict[tuple[str, str], dict[str, Any]]) -> str:
    rows = []
    for model in MODELS:
        row = [model]
        for dataset, nested in NESTED.items():
            ours, once = found.get((nested, model)), found.get((dataset, model))
            text = f"{statistics.fmean(ours['auc']):.3f} ± {_error_over_folds(ours):.3f}" if ours else "-"
            row.append(f"{text} ({once['auc'][0]:.3f})" if once else text)
        rows.append(row)
    return table(["method", *DATASETS], rows)


def _leak(found: dict[tuple[str, str], dict[str, Any]]) -> str:
    """What the one choice of the paper's protocol, which has seen most test bags, gains over a nested one."""
    both = [
        (found.get((dataset, model)), found.get((NESTED[dataset], model))) for dataset in DATASETS for model in MODELS
    ]
    gains = [once["auc"][0] - nested["auc"][0] for once, nested in both if once and nested]
    if len(gains) < 2:
        return ""
    error = statistics.stdev(gains) / math.sqrt(len(gains))
    return (
        f"One choice minus nested: {statistics.fmean(gains):+.4f} ± {error:.4f} (standard error) over {len(gains)} models and sets"
        + (
            ", so that the leak of the paper's rule gains nothing that could be seen here.\n"
            if sign(gains) != 1
            else ".\n"
        )
    )


def _error_over_folds(result: dict[str, Any]) -> float:
    """Standard error of a mean over folds: the deviation between folds, of all seeds, over the root of their number in one."""
    values = [value for seed in result["folds"] for value in seed]
    return statistics.stdev(values) / math.sqrt(len(result["folds"][0]))


def _listed(grid: dict[str, tuple]) -> str:
    return "; ".join(f"{name} from {', '.join(f'{value:g}' for value in values)}" for name, values in grid.items())


def _claims(found: dict[tuple[str, str], dict[str, Any]]) -> list[tuple[str, str, str]]:
    wide = {("UCSB", model): found[WIDE, model] for model in MODELS if (WIDE, model) in found}
    rows = [_level(found | wide)]
    for kind in ("Hopfield", "pooling"):  # S with a wider search is not compared with D without
        both = all(("UCSB", f"{letter} {kind}") in wide for letter in "SD")
        rows.append(_sparse_against_dense(found | wide if both else found, kind))
    return rows


def _level(found: dict[tuple[str, str], dict[str, Any]]) -> tuple[str, str, str]:
    """Whether our AUC is within the paper's deviation or above it, with both protocols."""
    agree, notes = [], []
    counts = {"one choice": [0, 0], "nested": [0, 0]}
    for dataset, nested in NESTED.items():
        for model, paper in PAPER.items():
            mean, deviation = paper[dataset]
            inside = {}
            for protocol, name in (("one choice", dataset), ("nested", nested)):
                if (name, model) in found:
                    result = found[name, model]
                    auc = statistics.fmean(result["auc"])
                    inside[protocol] = auc >= mean - deviation
                    counts[protocol][0] += inside[protocol]
                    counts[protocol][1] += 1
                    if not inside[protocol]:
                        error = _error_over_folds(result)
                        notes.append(
                            f"{dataset} {model}, {protocol}, {auc:.3f} ± {error:.3f} < {mean:.3f} - {deviation:.3f}"
                        )
            agree.append(all(inside.values()) if inside else None)
    text = "; ".join(f"{protocol}: {good} of {number}" for protocol, (good, number) in counts.items() if number)
    if notes:
        text += (
            f". Below (± standard error over folds): {'; '.join(notes)}. The paper's deviations are those of means over other folds of the same "
            "bags, and say nothing about other bags: a fold of UCSB has 5 or 6, and a mean over ten of them is known to 0.04. UCSB with one "
            "choice is judged by the wider search where it was made."
        )
    return (
        "AUC of the four models on the four sets (our bar: within the paper's deviation, or above)",
        verdict(agree),
        text or "not run",
    )


def _sparse_against_dense(found: dict[tuple[str, str], dict[str, Any]], kind: str) -> tuple[str, str, str]:
    """Whether S is better than D where the paper has it so, and not where it has not; paired by seed, with the same folds."""
    paper = {name: PAPER[f"S {kind}"][name][0] > PAPER[f"D {kind}"][name][0] for name in DATASETS}
    agree, texts = [], []
    for dataset in DATASETS:
        both = [found.get((dataset, f"{letter} {kind}")) for letter in "SD"]
        if None in both:
            agree.append(None)
            continue
        differences = [sparse - dense for sparse, dense in zip(both[0]["auc"], both[1]["auc"], strict=True)]
        clear = sign(differences)
        agree.append(clear == 1 if paper[dataset] else clear != 1)
        words = {1: "S better", -1: "S worse", 0: "no clear difference"}
        error = statistics.stdev(differences) / math.sqrt(len(differences)) if len(differences) > 1 else math.nan
        texts.append(f"{dataset} {statistics.fmean(differences):+.3f} ± {error:.3f} ({words[clear]})")
    better = ", ".join(name for name in DATASETS if paper[name])
    return (
        f"S {kind} is better than D {kind} on {better} and not on the others",
        verdict(agree),
        (
            f"S - D, paired by seed, ± standard error: {'; '.join(texts)}. Bags are small (13 instances at most, 40 in UCSB), so that softmax "
            "is not diluted, and the scaling is chosen for each model: the reason that sparse models win on long bags (section 2) is absent here. The paper's "
            "own differences are within its deviations, but for pooling on Elephant."
            if texts
            else "not run"
        ),
    )


def _plot(found: dict[tuple[str, str], dict[str, Any]], folder: Path) -> None:
    made, axes = figure(width=7.0)
    axis = axes[0][0]
    for place, dataset in enumerate(DATASETS):
        for shift, (model, paper) in enumerate(PAPER.items()):
            x = place + 0.2 * (shift - 1.5)
            axis.errorbar(x - 0.04, *paper[dataset], fmt="_", color="gray", capsize=2)
            if (dataset, model) in found:
                values = found[dataset, model]["auc"]
                axis.errorbar(
                    x + 0.04,
                    statistics.fmean(values),
                    statistics.stdev(values) if len(values) > 1 else 0.0,
                    fmt="o",
                    color=f"C{shift}",
                    label=model if place == 0 else None,
                    capsize=2,
                )
    axis.set_xticks(range(len(DATASETS)), list(DATASETS))
    axis.set(ylabel="ROC-AUC", title="grey: the paper")
    if axis.get_legend_handles_labels()[0]:
        axis.legend(fontsize=7)
    save_figure(made, folder / "multiple_instance.png")
