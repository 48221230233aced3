# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""A budget: the sparsest model whose loss stays within a share of the dense loss."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from torch import nn

from ..model_running import Batch
from ..observation import Observer
from ..progress import progress_bar
from .comparison import compare_with_dense, mean_loss
from .head_search import HeadSearch
from .refinement import Refiner
from .resume import Record


_BISECTIONS = 5
_SMALLEST_ERROR = 1e-4


@dataclass(frozen=True)
class Budget:
    """
    How much worse than the dense model a sparse model may be.

    Args:
        share (`float`): The allowed increase of the loss, as a share of the dense loss; without labels, the allowed
            divergence from the dense outputs.
        model ([`~transformers.PreTrainedModel`]): A sparse model.
        batches (iterable of `dict`): Model inputs to measure it on.
    """

    share: float
    model: nn.Module
    batches: Iterable[Batch]

    def measure(self, settings: Observer, dense_loss: float | None) -> dict[str, float]:
        """
        Measure the model with some settings: both losses, or without labels its comparison with the dense model.

        Args:
            settings ([`Observer`]): Gives the settings.
            dense_loss (`float`, *optional*): Loss of the dense model, if the batches have labels.
        """
        sparse_loss = None if dense_loss is None else mean_loss(self.model, self.batches, settings)
        if dense_loss is None or sparse_loss is None:
            return compare_with_dense(self.model, self.batches, settings)
        return {"dense_loss": dense_loss, "sparse_loss": sparse_loss}

    def allows(self, outcome: dict[str, float]) -> bool:
        """Return whether a measurement is within the budget."""
        if "dense_loss" in outcome:
            return outcome["sparse_loss"] <= outcome["dense_loss"] * (1 + self.share)
        return outcome["divergence"] <= self.share

    def largest_error(self, search: HeadSearch, record: Record, progress: bool) -> dict[str, float]:
        """
        Find, by bisection, the largest error per head that keeps the model within the budget.

        Args:
            search ([`HeadSearch`]): A finished search of alpha.
            record ([`Record`]): Keeps what was measured; the bisection resumes from there.
            progress (`bool`): Show progress.

        Returns:
            `dict`: The error as `max_error`, and the measurement of the model with it.
        """
        before = record.state.get("bisection", {})
        tried = list(before["tried"]) if before.get("budget") == self.share else []
        dense_loss = tried[0].get("dense_loss") if tried else mean_loss(self.model, self.batches, Observer())
        low, high = math.log(_SMALLEST_ERROR), math.log(1.0)
        best: dict[str, float] = {}
        with progress_bar("searching within the budget", range(_BISECTIONS), enabled=progress) as bar:
            for number in bar:
                middle = (low + high) / 2
                if number == len(tried):
                    settings = Refiner.starting_from(search.choose_all(math.exp(middle)), learn_alpha=False)
                    tried.append(self.measure(settings, dense_loss))
                    record.save(bisection={"budget": self.share, "tried": tried})
                if self.allows(tried[number]):
                    low, best = middle, {"max_error": math.exp(middle), **tried[number]}
                else:
                    high = middle
        if not best:
            raise ValueError(
                f"budget={self.share} cannot be kept: with an error of {math.exp(high):.2g} per head, which is nearly "
                f"dense, it is exceeded ({tried[-1]}). Allow more, or use the dense model."
            )
        return best
