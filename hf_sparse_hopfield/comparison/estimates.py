# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Figures with their standard errors, by the jackknife: it serves every metric, also those that are no means, such as F1."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar


Sample = TypeVar("Sample")
_GROUPS = 100  # at most: each takes one computation of the metric


class Estimate(NamedTuple):
    """A figure. Its standard error is `None` where there are not enough samples for one."""

    value: float
    standard_error: float | None = None


def jackknife(
    statistic: Callable[[Sequence[Sample]], dict[str, float]], samples: Sequence[Sample]
) -> dict[str, Estimate]:
    """
    Compute figures from samples, with the standard errors of the jackknife: how much the figures change when some of the samples
    are left out.

    Args:
        statistic (`Callable`): Computes the figures, by name, from samples.
        samples (sequence): All samples. For a paired difference, a sample has what both models did with it.

    Returns:
        `dict[str, Estimate]`: For a mean, and not more than 100 samples, the standard error is the usual one.
    """
    values = statistic(samples)
    count = computations(len(samples)) - 1
    if not count:
        return {name: Estimate(value) for name, value in values.items()}
    without = [statistic([s for i, s in enumerate(samples) if i % count != group]) for group in range(count)]
    errors = {}
    for name in values:
        found = [part[name] for part in without]
        mean = math.fsum(found) / count
        errors[name] = math.sqrt((count - 1) / count * math.fsum((value - mean) ** 2 for value in found))
    return {name: Estimate(value, errors[name]) for name, value in values.items()}


def computations(samples: int) -> int:
    """How often [`jackknife`] computes its figures of so many samples: of all, and without each group of them."""
    return 1 + (min(_GROUPS, samples) if samples > 1 else 0)
