# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Two models run on the same batches in turns, so that other load on the machine affects both alike."""

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from transformers import PreTrainedModel

from ..benchmark.timing import seconds_of
from ..model_running import evaluating
from ..progress import progress_bar
from .estimates import Estimate, jackknife
from .tasks import Case, Task
from .tasks.task import Sample


@dataclass
class Runs:
    """
    What two models did, in the same order.

    Args:
        samples (`dict[str, list]`): For `"dense"` and `"sparse"`, what the metrics take of each sample.
        seconds (`dict[str, list[float]]`): The time of each batch.
    """

    samples: dict[str, list[Sample]] = field(default_factory=lambda: {"dense": [], "sparse": []})
    seconds: dict[str, list[float]] = field(default_factory=lambda: {"dense": [], "sparse": []})

    @property
    def pairs(self) -> list[tuple[Sample, Sample]]:
        """Each sample, as the dense model and as the sparse model did it."""
        return list(zip(self.samples["dense"], self.samples["sparse"], strict=True))

    def median(self, name: str) -> float:
        """Median time of a batch, in seconds."""
        return statistics.median(self.seconds[name])

    def ratio(self) -> Estimate:
        """Median time of the sparse model over that of the dense one. Its standard error is that of the mean over batches."""
        ratio = self.median("sparse") / self.median("dense")
        each = [math.log(s / d) for d, s in zip(self.seconds["dense"], self.seconds["sparse"], strict=True)]
        error = jackknife(lambda logs: {"mean": statistics.fmean(logs)}, each)["mean"].standard_error
        return Estimate(ratio, None if error is None else ratio * error)


@torch.no_grad()
def run_in_turns(
    task: Task, models: dict[str, PreTrainedModel], cases: Sequence[Case], seed: int, progress: bool = False
) -> Runs:
    """
    Run two models on all batches.

    Args:
        task ([`Task`]): What to run.
        models (`dict`): The models `"dense"` and `"sparse"`.
        cases (sequence of [`Case`]): The batches.
        seed (`int`): For the order of the models, which changes: one of them leaves the other a cold cache.
        progress (`bool`, *optional*, defaults to `False`): Show progress.
    """
    found, shuffle = Runs(), random.Random(seed).shuffle
    with evaluating(models["dense"]), evaluating(models["sparse"]):
        for model in models.values():
            task.run(model, cases[0].inputs)  # libraries initialise on first use, which is not to be timed
        with progress_bar("comparing", cases, enabled=progress) as bar:
            for case in bar:
                order = list(models)
                shuffle(order)
                for name in order:
                    outputs: list = []
                    model = models[name]
                    found.seconds[name].append(seconds_of(lambda: outputs.append(task.run(model, case.inputs))))  # noqa: B023
                    found.samples[name] += task.samples(case, outputs[0])
    return found
