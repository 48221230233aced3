# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`CalibrationReport` and `DistillationReport`: the results, for reading, logging and saving."""

import os
from dataclasses import asdict, dataclass, field
from typing import Any

from transformers.utils import logging

from ..files import write_json


logger = logging.get_logger(__name__)


@dataclass
class CalibrationReport:
    """
    The result of [`calibrate`].

    Args:
        objective (`str`): What was minimised for each head.
        batches (`int`): Number of batches that the search used.
        layers (`dict[str, dict[str, list[float]]]`):
            For each attention module, one number per head: `alpha`, `beta`, `length_power`, `error` (of the head's output, relative to its
            energy; with the objective `"kl"`, the mean divergence of a row in nats) and `support` (share of the visible
            keys that get weight). After refining, these describe the refined settings.
        refined (`list[float]`): The value that refining minimised, for each step.
        budget (`dict[str, float]`): For a budget: dense and sparse loss (or divergence), and the error allowed per head.
        warnings (`list[str]`): Requests that could not be met in full.
        seconds (`float`): Duration.
        longest (`int`): The most keys that a query saw. The settings hold for rows up to about this length.
    """

    objective: str
    batches: int = 0
    layers: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    refined: list[float] = field(default_factory=list)
    budget: dict[str, float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    seconds: float = 0.0
    longest: int = 0

    def warn(self, message: str) -> None:
        """Log a warning and keep it in the report."""
        logger.warning(message)
        self.warnings.append(message)

    def mean(self, name: str) -> float:
        """Return the mean over all heads of `"alpha"`, `"beta"`, `"length_power"`, `"error"` or `"support"`."""
        values = [value for layer in self.layers.values() for value in layer[name]]
        return sum(values) / len(values)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that JSON can hold."""
        return asdict(self)

    def save(self, path: str | os.PathLike) -> None:
        """Write the report as JSON."""
        write_json(path, self.to_dict())


@dataclass
class DistillationReport:
    """
    The result of [`distill`].

    Args:
        options (`dict`): The options.
        steps (`int`): Steps that were taken.
        tokens (`int`): Tokens that they saw; samples, for models that take no tokens.
        unit (`str`): `"tokens"` or `"samples"`.
        teacher (`str`): What they learned from: the class of the teacher, or `"the dense model"`.
        held_out (`dict[str, dict[str, float]]`):
            Before and after: `divergence` from the dense model and `cosine` of the outputs, and with labels both losses, on batches
            that were not trained on.
        held_out_batches (`int`): Their number.
        support (`dict[str, list[float]]`): Share of the visible keys with weight in each head, by attention module.
        changed (`dict[str, float]`): Relative change of the trained weights of each attention module.
        losses (`list[float]`): What was minimised, for each step that was logged.
        log (`list[dict[str, float]]`):
            For each of these steps: `step`, `loss`, `layer_error` (of the outputs of attention modules) or `divergence`, and `support`.
        seconds (`float`): Duration.
    """

    options: dict[str, Any]
    steps: int = 0
    tokens: int = 0
    unit: str = "tokens"
    teacher: str = "the dense model"
    held_out: dict[str, dict[str, float]] = field(default_factory=dict)
    held_out_batches: int = 0
    support: dict[str, list[float]] = field(default_factory=dict)
    changed: dict[str, float] = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)
    log: list[dict[str, float]] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def mean_support(self) -> float:
        """Mean over all heads of the share of keys with weight."""
        values = [share for layer in self.support.values() for share in layer]
        return sum(values) / len(values)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that JSON can hold."""
        return {**asdict(self), "mean_support": self.mean_support}

    def save(self, path: str | os.PathLike) -> None:
        """Write the report as JSON."""
        write_json(path, self.to_dict())
