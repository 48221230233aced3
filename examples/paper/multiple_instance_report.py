# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Tables, figure and verdicts of the multiple-instance benchmarks, made from their record alone."""

import math
import statistics
from pathlib import Path
from typing import Any

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
from reporting import claims, figure, save_figure, select, sign, spread, table, verdict


PAPER = {
    "D Hopfield": {"Tiger": (0.878, 0.028), "Fox": (0.600, 0.011), "Elephant": (0.907, 0.022), "UCSB": (0.880, 0.013)},
    "S Hopfield": {"Tiger": (0.892, 0.021), "Fox": (0.611, 0.010), "Elephant": (0.912, 0.016), "UCSB": (0.877, 0.009)},
    "D pooling": {"Tiger": (0.871, 0.014), "Fox": (0.637, 0.035), "Elephant": (0.876, 0.015), "UCSB": (0.828, 0.068)},
    "S pooling": {"Tiger": (0.884, 0.007), "Fox": (0.610, 0.033), "Elephant": (0.914, 0.016), "UCSB": (0.796, 0.107)},
}
# Other methods, which the paper's table takes from elsewhere. We have not run them.
PAPER_OTHERS = {
    "Path encoding": {"Tiger": 0.910, "Fox": 0.712, "Elephant": 0.944, "UCSB": 0.880},
    "MInD": {"Tiger": 0.853, "Fox": 0.704, "Elephant": 0.936, "UCSB": 0.831},
    "MILES": {"Tiger": 0.872, "Fox": 0.738, "Elephant": 0.927, "UCSB": 0.833},
}


def report(record: dict[str, Any], folder: Path) -> str:
    """Make the section of RESULTS.md and the figure `multiple_instance.png`."""
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

ROC-AUC, mean ± standard deviation over {seeds} seeds of the mean over ten folds (the paper in brackets).

{_table_of_one_choice(found)}
**Protocol.** Ten-fold stratified cross-validation, with other folds and initial weights for each seed. A tenth of the training folds is held
out for validation. Features are standardised on the training bags of the fold and clipped at {CLIP:g} standard deviations (see below). Adam, {EPOCHS} epochs.

**Hyperparameters** are chosen once for each data set and model, by {SELECTION_FOLDS}-fold cross-validation within the nine training folds of the
first fold of the first seed (the paper uses one split): {_listed(GRID)}. For lack of time we fix some that the paper
searches: batch {TRAINING["batch"]}, learning rate {TRAINING["learning_rate"]:g} with decay {TRAINING["decay"]}, {FIXED["embedding_layers"]} embedding layer of width {FIXED["embedding_size"]}, {FIXED["num_heads"]} heads of size {FIXED["head_size"]}.
This is the paper's rule, and it leaks: nine tenths of all bags take part in the choice and are test bags of the other folds and seeds.

**Wider search.** With that choice, the two Hopfield models on UCSB were below the paper's spread, so we ran them again with the rest of the
paper's grid. The wider search starts from the best of the choices above and then sets each of these to its best value, one after the other:
{_listed(WIDER)}. Every choice is judged by {WIDE_REPEATS} ten-fold cross-validations within the same nine folds.
The test folds are those of the first run, whose AUC was known when we widened the search. On so few bags such a choice says little: an
earlier search for D Hopfield, which differed only in the random numbers of its dropout and stopped before decay and batch, ended at width
128 and 12 heads of size 32, with a test AUC of .856 ± .043 over the five seeds.

**Early stopping.** The paper stops early on validation AUC. Its published code does not: it never raises the best AUC it compares with, and so
reports the last epoch it runs. We do not stop early either, because the best of 50 epochs on 18 validation bags is mostly luck: on Tiger
(first seed, all ten folds), S pooling has .854 with the best epoch and .883 with the last, D pooling .872 and .881. These test scores were
seen before the rules were made. So were two others on Tiger, with five seeds and a choice by five random splits instead of
cross-validation: .838 for D pooling with the best epoch, and .831 for S pooling with the last. No further test scores were seen.

**Clipping** was chosen for all models and sets on validation bags, with S pooling and bag dropout 0.75 (mean AUC of three ten-fold
cross-validations within the nine training folds of the first fold). Without and with clipping: Tiger .848 and .908 (scaling 0.1), .851 and .912
(scaling 1), Fox .574 and .684, UCSB .846 and .865. Without clipping, the test folds of Tiger gave .855 for D pooling and .847 for S pooling (five
seeds).

The choices were:

{_table_of_choices(found)}
### Nested: a choice for every fold, made without its bags

ROC-AUC of the ten folds of the first seed, mean ± standard error over the folds (in brackets: the first seed of the table above, on the same
folds). Each fold chooses from the grid ({_listed(GRID)}) with models that are trained without that fold and without one of three other folds, on
which they are judged. It then trains on the same bags as above. Only the clipping was decided once for all folds, as described above. (The choices
come from a first run, which then also trained on the held-out bags; these AUCs were computed again from the stored choices.)

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
    return table(
        ["data", "model", *GRID, "changed from the fixed values", "choices tried", "their validation AUC"], rows
    )


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
    """Compare the single choice of the paper's protocol, which has seen most test bags, with nested choices."""
    both = [
        (found.get((dataset, model)), found.get((NESTED[dataset], model))) for dataset in DATASETS for model in MODELS
    ]
    gains = [once["auc"][0] - nested["auc"][0] for once, nested in both if once and nested]
    if len(gains) < 2:
        return ""
    error = statistics.stdev(gains) / math.sqrt(len(gains))
    return (
        f"One choice minus nested: {statistics.fmean(gains):+.4f} ± {error:.4f} (standard error) over {len(gains)} models and sets"
        + (", so the leak of the paper's rule has no measurable benefit here.\n" if sign(gains) != 1 else ".\n")
    )


def _error_over_folds(result: dict[str, Any]) -> float:
    """Standard error of a mean over folds: the deviation over the folds of all seeds, divided by the root of the folds per seed."""
    values = [value for seed in result["folds"] for value in seed]
    return statistics.stdev(values) / math.sqrt(len(result["folds"][0]))


def _listed(grid: dict[str, tuple]) -> str:
    return "; ".join(f"{name} from {', '.join(f'{value:g}' for value in values)}" for name, values in grid.items())


def _claims(found: dict[tuple[str, str], dict[str, Any]]) -> list[tuple[str, str, str]]:
    wide = {("UCSB", model): found[WIDE, model] for model in MODELS if (WIDE, model) in found}
    rows = [_level(found | wide)]
    for kind in ("Hopfield", "pooling"):  # do not compare S after a wider search with D before it
        both = all(("UCSB", f"{letter} {kind}") in wide for letter in "SD")
        rows.append(_sparse_against_dense(found | wide if both else found, kind))
    return rows


def _level(found: dict[tuple[str, str], dict[str, Any]]) -> tuple[str, str, str]:
    """Judge whether our AUC is within the paper's deviation or above it, in both protocols."""
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
            "bags and say nothing about other bags: a fold of UCSB has 5 or 6 bags, and the mean over ten folds has a standard error of about "
            "0.04. With one choice, UCSB is judged by the wider search where there is one."
        )
    return (
        "AUC of the four models on the four sets (here: within the paper's deviation, or above)",
        verdict(agree),
        f"Within the deviation or above: {text}" if text else "Not run.",
    )


def _sparse_against_dense(found: dict[tuple[str, str], dict[str, Any]], kind: str) -> tuple[str, str, str]:
    """Judge whether S is better than D exactly where the paper has it so, paired by seed on the same folds."""
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
            f"S - D, paired by seed, ± standard error: {'; '.join(texts)}. Bags are small (at most 13 instances, 40 in UCSB), so softmax "
            "is not diluted, and the scaling is chosen for each model; what makes sparse models win on long bags (section 2) is absent here. The "
            "paper's own differences are within its deviations, except for pooling on Elephant."
            if texts
            else "Not run."
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
