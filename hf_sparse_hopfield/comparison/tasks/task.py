# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`Task`: the form of a task."""

import functools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from transformers import PreTrainedModel

from ...hub.metadata import loads
from ...metrics import load_metric
from ..estimates import Estimate
from ..options import CompareOptions


# What the metrics take of one sample: for each module of evaluate its inputs, each a list.
Sample = dict[str, dict[str, list]]


class Measure(NamedTuple):
    """A module of evaluate, what to give it besides its inputs, and which of its results to show under which name."""

    module: str
    shown: dict[str, str]
    options: dict[str, Any] = {}  # noqa: RUF012  (never changed)


@dataclass
class Case:
    """
    A batch, and what its outputs are compared with.

    Args:
        inputs (`dict`): What [`Task.run`] takes.
        expected: What the outputs should be, in the form that [`Task.samples`] takes.
        forward (`dict`, *optional*): What the model itself takes, if [`Task.run`] does more than call it.
    """

    inputs: dict[str, Any]
    expected: Any = None
    forward: dict[str, Any] = field(default_factory=dict)


class Task(ABC):
    """
    A task on which two models are compared.

    Args:
        model ([`~transformers.PreTrainedModel`]): The dense model.
        processor: Its tokenizer or image processor.
        options ([`CompareOptions`]): What to run on.
    """

    auto_class: ClassVar[str]  # the Auto class of models that can do the task
    usual_samples: ClassVar[int] = 1000
    usual_batch_size: ClassVar[int] = 16

    def __init__(self, model: PreTrainedModel, processor: Any, options: CompareOptions) -> None:
        self.model, self.processor, self.options = model, processor, options
        self.samples_wanted = options.samples or self.usual_samples
        self.batch_size = options.batch_size or self.usual_batch_size

    @classmethod
    def check(cls, model: PreTrainedModel, path: str, task: str) -> None:
        """Refuse a model that cannot do the task."""
        if not loads(cls.auto_class, model):
            raise ValueError(
                f"{path!r} is a {type(model).__name__}, which cannot do {task}: that needs a model of {cls.auto_class}."
            )

    @abstractmethod
    def cases(self, data: str) -> list[Case]:
        """Make the batches of a file or dataset."""

    @staticmethod
    def run(model: PreTrainedModel, inputs: dict[str, Any]) -> Any:
        """Run a model. This is what is timed."""
        return model(**inputs)

    @abstractmethod
    def samples(self, case: Case, output: Any) -> list[Sample]:
        """What the metrics take of each sample of a batch."""

    def measures(self, samples: Sequence[Sample]) -> list[Measure]:
        """The metrics of the task."""
        return []

    def agreement(self, pairs: Sequence[tuple[Sample, Sample]]) -> dict[str, Estimate]:
        """How alike the two models are, from what both did with each sample: first the dense one, then the sparse one."""
        return {}


_module = functools.cache(load_metric)  # a standard error takes hundreds of computations


def compute(measure: Measure, samples: Sequence[Sample]) -> dict[str, float]:
    """Compute a metric over samples."""
    parts = [sample[measure.module] for sample in samples]
    inputs = {name: [value for part in parts for value in part[name]] for name in parts[0]}
    found = _module(measure.module).compute(**inputs, **measure.options)
    return {name: found[key] for name, key in measure.shown.items()}
