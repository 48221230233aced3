# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Multiple-instance benchmarks: Tiger, Fox, Elephant and UCSB breast cancer, with Hopfield and pooling, sparse and dense.

    python examples/paper/multiple_instance.py --data_dir DATA --output_dir OUT
    python examples/paper/multiple_instance.py --quick --output_dir OUT         # generated bags, seconds

Ten-fold stratified cross-validation is repeated with other folds and initial weights for every seed. Features are standardised
on the training bags and clipped, and the model after 50 epochs is tested. There are two protocols:

- The paper's: hyperparameters are chosen once, by cross-validation within the nine training folds of the first fold of the
  first seed, and kept for all other folds and seeds (so most of their test bags took part in the choice). UCSB, where a small
  grid was not enough, is run a second time with a search along the paper's whole grid, one hyperparameter after the other.
- Nested: every fold has its own choice, in which its test bags take no part.

All models of one configuration (seeds x folds) are trained as one stack (stacking.py).
"""

import itertools
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from harness import Cell, ExperimentArguments, parse, run
from multiple_instance_report import report
from multiple_instance_settings import (
    CLIP,
    DATASETS,
    EPOCHS,
    FIXED,
    FOLDS,
    GRID,
    MODELS,
    NESTED_SEEDS,
    SELECTION_FOLDS,
    TRAINING,
    WIDE,
    WIDE_REPEATS,
    WIDER,
)
from stacking import stack
from torch import nn

from hf_sparse_hopfield.extras import require
from hf_sparse_hopfield.models import (
    MultipleInstanceCollator,
    SparseHopfieldForMultipleInstanceClassification,
    SparseHopfieldMultipleInstanceConfig,
    standardization,
)


sys.path.append(str(Path(__file__).parents[1]))  # the training scripts

from run_multiple_instance import instances_of, read_npz, smoke_data  # noqa: E402


class Bags(NamedTuple):
    """All bags of a data set, padded: `(bags, largest, features)`, their mask and labels."""

    instances: torch.Tensor
    mask: torch.Tensor
    labels: torch.Tensor


class Split(NamedTuple):
    """Indices of the bags for training, validation and testing of one model."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


def load_bags(path: Path | None) -> Bags:
    """Read a data set, or generate one."""
    rows = smoke_data()["validation"] if path is None else read_npz(str(path))
    features = [
        {"instances": bag, "labels": label} for bag, label in zip(rows["instances"], rows["label"], strict=True)
    ]
    batch = MultipleInstanceCollator()(features)
    return Bags(batch["instances"], batch["attention_mask"], batch["labels"])


def make_splits(labels: np.ndarray, seed: int, folds: int) -> list[Split]:
    """Make the folds of one seed. As in the paper, a tenth of the training bags is held out, although we do not use it."""
    splits = []
    for number, (train, test) in enumerate(_folds(labels, folds, seed)):
        train, validation = _hold_out(train, labels, 100 * seed + number)
        splits.append(Split(train, validation, test))
    return splits


def _folds(labels: np.ndarray, folds: int, seed: int) -> Iterable[tuple[np.ndarray, np.ndarray]]:
    selection = require("sklearn.model_selection", "examples")
    return selection.StratifiedKFold(folds, shuffle=True, random_state=seed).split(np.zeros(len(labels)), labels)


def _hold_out(bags: np.ndarray, labels: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    selection = require("sklearn.model_selection", "examples")
    return selection.train_test_split(bags, test_size=0.1, stratify=labels[bags], random_state=seed)


def pairwise_auc(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """
    Area under the ROC curve: how often a positive bag scores higher than a negative one. Ties count half.

    Args:
        scores (`torch.Tensor` of shape `(models, bags)`): Scores.
        labels (`torch.Tensor` of shape `(models, bags)`): 0, 1, or -1 for padding.
    """
    pairs = (labels[:, :, None] == 1) & (labels[:, None, :] == 0)
    higher = (scores[:, :, None] > scores[:, None, :]).float() + 0.5 * (
        scores[:, :, None] == scores[:, None, :]
    ).float()
    return (higher * pairs).sum((1, 2)) / pairs.sum((1, 2))


class StackedTraining:
    """
    Trains one model per split, all together.

    Args:
        config ([`SparseHopfieldMultipleInstanceConfig`]): Their configuration.
        bags ([`Bags`]): The data set.
        splits (`list[Split]`): The splits.
        seed (`int`): Seed of the initial weights and the order of the bags.
    """

    def __init__(
        self, config: SparseHopfieldMultipleInstanceConfig, bags: Bags, splits: list[Split], seed: int
    ) -> None:
        torch.manual_seed(seed)
        self.bags, self.splits = bags, splits
        self.model = stack([SparseHopfieldForMultipleInstanceClassification(config) for _ in splits])
        scales = [standardization(instances_of([self._own(bag) for bag in split.train])) for split in splits]
        self.mean, self.deviation = (torch.stack(each).float()[:, None, None] for each in zip(*scales, strict=True))

    def _own(self, bag: int) -> np.ndarray:
        return self.bags.instances[bag, : int(self.bags.mask[bag].sum())].numpy()

    def _scores(self, chosen: torch.Tensor) -> torch.Tensor:
        """Logits of bags `(models, n)`, as `(models, n, 2)`."""
        mask = self.bags.mask[chosen]
        largest = int(mask.sum(-1).max())
        instances = (self.bags.instances[chosen][:, :, :largest] - self.mean) / self.deviation
        instances = instances.clamp(-CLIP, CLIP)
        logits = self.model(instances.flatten(0, 1), mask[:, :, :largest].flatten(0, 1)).logits
        return logits.unflatten(0, chosen.shape)

    def fit(self, epochs: int, batch: int, learning_rate: float, decay: float) -> None:
        """Train all models for `epochs` passes over their training bags."""
        size = min(len(split.train) for split in self.splits)
        optimizer = torch.optim.Adam(self.model.parameters(), lr=learning_rate)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, decay)
        self.model.train()
        for _ in range(epochs):
            # Folds differ in size by a bag or two; each epoch leaves out other bags.
            order = torch.stack(
                [torch.as_tensor(split.train)[torch.randperm(len(split.train))[:size]] for split in self.splits]
            )
            for chosen in order.split(batch, 1):
                loss = nn.functional.cross_entropy(
                    self._scores(chosen).flatten(0, 1), self.bags.labels[chosen].flatten()
                )
                optimizer.zero_grad(set_to_none=True)
                (len(self.splits) * loss).backward()
                optimizer.step()
            schedule.step()

    @torch.no_grad()
    def auc(self, part: str) -> torch.Tensor:
        """AUC of each model on its bags of one part, `"validation"` or `"test"`."""
        self.model.eval()
        chosen = [torch.as_tensor(getattr(split, part)) for split in self.splits]
        labels = nn.utils.rnn.pad_sequence([self.bags.labels[bags] for bags in chosen], True, padding_value=-1)
        logits = self._scores(nn.utils.rnn.pad_sequence(chosen, True))
        return pairwise_auc(logits[..., 1] - logits[..., 0], labels)


def make_config(model: str, bags: Bags, choice: dict[str, Any]) -> SparseHopfieldMultipleInstanceConfig:
    """Make the configuration of a model with a choice of hyperparameters."""
    settings = FIXED | {name: value for name, value in choice.items() if name not in TRAINING}
    return SparseHopfieldMultipleInstanceConfig(input_size=bags.instances.shape[2], **settings, **MODELS[model])


def train(
    model: str, bags: Bags, splits: list[Split], choice: dict[str, Any], epochs: int, seed: int
) -> StackedTraining:
    """Train a model on every split with a choice of hyperparameters. The others are as in `FIXED` and `TRAINING`."""
    training = StackedTraining(make_config(model, bags, choice), bags, splits, seed)
    training.fit(epochs, **{name: choice.get(name, value) for name, value in TRAINING.items()})
    return training


def evaluate(
    dataset: str,
    model: str,
    seeds: int,
    folds: int,
    epochs: int,
    grid: dict[str, list],
    bags: Bags,
    wider: dict[str, list] | None = None,
    repeats: int = 1,
) -> dict[str, Any]:
    """
    Choose hyperparameters, then cross-validate.

    Args:
        grid (`dict`): Hyperparameters whose combinations are all tried.
        wider (`dict`, *optional*): Further hyperparameters. Starting from the best combination, each is set to its best value.
        repeats (`int`, *optional*, defaults to 1): Number of cross-validations, with other folds, to judge a choice by.

    Returns:
        `dict`: `auc` (mean over the folds, per seed), `folds` (seeds x folds), `choice` and `selection` (validation AUC of
        each choice).
    """
    labels = bags.labels.numpy()
    first = make_splits(labels, 0, folds)[0]
    known = np.concatenate([first.train, first.validation])
    inner = [
        Split(known[part], known[validation], test=np.empty(0, dtype=int))
        for repeat in range(repeats)
        for part, validation in _folds(labels[known], SELECTION_FOLDS, seed=repeat)
    ]
    selection = []

    def best(choices: Iterable[dict[str, Any]]) -> dict[str, Any]:
        """Try these choices and return the best of all tried so far."""
        for choice in choices:
            tried = train(model, bags, inner, choice, epochs, seed=0)
            selection.append((float(tried.auc("validation").mean()), choice))
        return max(selection, key=lambda entry: entry[0])[1]

    choice = best([dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())])
    for name, values in (wider or {}).items():
        now = (FIXED | TRAINING | choice)[name]
        choice = best([choice | {name: value} for value in values if value != now])
    splits = [split for seed in range(seeds) for split in make_splits(labels, seed, folds)]
    by_seed = train(model, bags, splits, choice, epochs, seed=1).auc("test").view(seeds, folds)
    return {
        "auc": by_seed.mean(1),
        "folds": by_seed,
        "choice": choice,
        "selection": [{"validation": auc, **tried} for auc, tried in selection],
    }


def evaluate_nested(
    dataset: str, model: str, seeds: int, folds: int, epochs: int, grid: dict[str, list], bags: Bags
) -> dict[str, Any]:
    """
    Cross-validate with a separate choice of hyperparameters for every fold, made without its bags.

    A model trained without two folds judges a choice for each of them by its AUC on the other. Each fold is paired with the
    next, the previous and the opposite fold.

    Returns:
        `dict`: As from [`evaluate`], but `choices` has one choice per seed and fold, and so has each AUC in `selection`.
    """
    labels = bags.labels.numpy()
    pairs = sorted({tuple(sorted((i, (i + far) % folds))) for i in range(folds) for far in (1, folds // 2)})
    everything = np.arange(len(labels))
    outer, inner = [], []
    for seed in range(seeds):
        outer += make_splits(labels, seed, folds)
        parts = [split.test for split in outer[-folds:]]
        for i, j in pairs:
            inner.append(Split(np.setdiff1d(everything, np.concatenate([parts[i], parts[j]])), parts[i], parts[j]))
    choices = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    scores = torch.zeros(len(choices), seeds, folds)
    for number, choice in enumerate(choices):
        tried = train(model, bags, inner, choice, epochs, seed=0)
        on_first, on_second = (tried.auc(part).view(seeds, -1) for part in ("validation", "test"))
        for place, (i, j) in enumerate(pairs):
            scores[number, :, i] += on_second[:, place]
            scores[number, :, j] += on_first[:, place]
    chosen = [choices[number] for number in scores.argmax(0).flatten()]
    by_seed = auc_of_choices(model, bags, outer, chosen, epochs).view(seeds, folds)
    neighbours = 2 * len(pairs) / folds
    return {
        "auc": by_seed.mean(1),
        "folds": by_seed,
        "choices": chosen,
        "selection": [
            {"validation": score / neighbours, **choice} for score, choice in zip(scores, choices, strict=True)
        ],
    }


def auc_of_choices(
    model: str, bags: Bags, splits: list[Split], choices: list[dict[str, Any]], epochs: int
) -> torch.Tensor:
    """Compute the test AUC on every split, each with its own choice of hyperparameters."""
    found = torch.zeros(len(splits))
    for choice in {tuple(choice.items()): choice for choice in choices}.values():
        mine = [place for place, other in enumerate(choices) if other == choice]
        found[mine] = train(model, bags, [splits[place] for place in mine], choice, epochs, seed=1).auc("test")
    return found


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Run the experiment. Returns its record."""
    arguments = parse(ExperimentArguments, argv)
    seeds = len(arguments.seed_range(5, 2))
    if arguments.quick:
        sources: dict[str, Path | None] = {"generated": None}
        common = {"seeds": seeds, "folds": 3, "epochs": 8}
        grid = {name: list(values[-1:]) for name, values in GRID.items()} | {"scaling": [0.1, 1.0]}
    else:
        paths = arguments.require_data(*(f"mil/{name}.npz" for name in DATASETS.values()))
        sources = dict(zip(DATASETS, paths, strict=True))
        sources[WIDE] = sources["UCSB"]
        common = {"seeds": seeds, "folds": FOLDS, "epochs": EPOCHS}
        grid = {name: list(values) for name, values in GRID.items()}
    fixed = {**FIXED, **TRAINING, "clip": CLIP, "selection_folds": SELECTION_FOLDS}
    cells, nested = {}, {}
    for dataset, path in sources.items():
        bags = None if arguments.report_only else load_bags(path)
        for model in MODELS:
            if dataset == WIDE and "Hopfield" not in model:  # pooling reaches the paper's level with the small grid
                continue
            settings = {"dataset": dataset, "model": model, **common, "grid": grid}
            if dataset == WIDE:
                settings |= {"wider": {name: list(values) for name, values in WIDER.items()}, "repeats": WIDE_REPEATS}
            cells[f"{dataset}/{model.replace(' ', '_')}"] = Cell(evaluate, settings, {"bags": bags}, fixed)
            if dataset != WIDE:
                settings = {**settings, "dataset": f"{dataset}-nested", "seeds": min(seeds, NESTED_SEEDS)}
                nested[f"{dataset}-nested/{model.replace(' ', '_')}"] = Cell(
                    evaluate_nested, settings, {"bags": bags}, fixed
                )
    return run("multiple_instance", arguments, cells | nested, report)


if __name__ == "__main__":
    main()
