# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Few queries on the CPU, as in decoding.

There is so little to compute that calling operators costs more. Calling numpy takes a third of the time, and the
partition into blocks is skipped.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..problem import RetrievalProblem
from .partition import UNIT
from .solver import PLAIN_EPS, Rows, find_shift, weights
from .sparse_rows import weighted_sums
from .support import DENSE_GROUPS, DENSE_KEYS, group_maxima


# With more scores than this, numpy on one core takes longer than calling torch.
_MAX_SCORES = 1 << 19
# Dense rows start from the solution of every eighth of their keys.
_SAMPLE = 8


def find_support(
    scores: np.ndarray, maxima: np.ndarray, eps: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] | None:
    """
    Solve rows on the few scores above a lower bound, as `support.find_support` does; no row is empty.

    Args:
        scores (`numpy.ndarray` of shape `(rows, keys)`): Scores.
        maxima (`numpy.ndarray` of shape `(rows, groups)`): Maxima of groups of keys, from [`group_maxima`].
        eps (`float`): alpha - 1, at least `PLAIN_EPS`.

    Returns:
        `tuple`: Row, column and weight of each entry of the support, and the number of entries of each row; `None` if
        the support is large or a score is not finite.
    """
    (rows, keys), apart = scores.shape, maxima.shape[1]
    members = keys // apart
    top = maxima.max(1)
    if not (top.max() < np.inf and top.min() > -np.inf):
        return None
    margin = 4 * torch.finfo(torch.float32 if scores.dtype == np.float32 else torch.float64).eps

    def step_from(base: np.ndarray, sums: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        # as in `find_shift`
        np.maximum(base, 0, out=base)
        if eps == 1.0:
            return (sums(base) - 1) / sums(base > 0)
        slopes = base ** (1 / eps - 1)
        total = sums(slopes * base)
        return (total - total ** (1 - eps)) / (eps * sums(slopes))

    start = (maxima - top[:, None]) * eps + 1
    t = np.zeros_like(top)
    # A cheap start: the maxima of eighths of the groups.
    parts = start.reshape(rows, 8, -1).max(1) if apart >= 256 else start
    for values, steps in ((parts, 3), (start, 1)):
        for _ in range(steps):
            t += step_from(values - (eps * t)[:, None], lambda x: x.sum(1))
    t *= 1 - margin
    floor = top + t - (1 + margin) / eps - margin * np.abs(top)
    found = np.flatnonzero(maxima > floor[:, None])
    if found.size > DENSE_GROUPS * maxima.size:
        return None
    row = found // apart
    places = (found + row * (keys - apart))[:, None] + np.arange(0, keys, apart)
    score = scores.reshape(-1).take(places)
    chosen = np.flatnonzero(score > floor.take(row)[:, None])
    if chosen.size > DENSE_KEYS * scores.size:
        return None
    row, place, score = row.take(chosen // members), places.reshape(-1).take(chosen), score.reshape(-1).take(chosen)
    start = (score - top.take(row)) * eps + 1
    accuracy = margin / 2 * max(1.0, math.log(keys))
    for _ in range(100):
        step = step_from(start - (eps * t).take(row), lambda x: np.bincount(row, x, rows)).astype(t.dtype)
        t += step
        if not (np.abs(step) > accuracy).any():
            break
    weight = np.maximum(start - (eps * t).take(row), 0)
    if eps != 1.0:
        weight **= 1 / eps
    inside = np.flatnonzero(weight)
    row, column, weight = row.take(inside), (place - row * keys).take(inside), weight.take(inside)
    return row, column, weight, np.bincount(row, minlength=rows)


def _read_dense(scores: Tensor, eps: float, value: Tensor) -> Tensor | None:
    """Normalize whole rows and read out `value`, `(kv heads, keys, value_dim)`; `None` if a score is not finite."""
    origin = scores.amax(-1, keepdim=True)
    if not (origin.max() < torch.inf and origin.min() > -torch.inf):
        return None
    relative, low = scores - origin, torch.zeros_like(origin)
    # The shift of a sample is close to that of the row. After a small step, the error is of the order of its square.
    sample, accuracy = relative[:, ::_SAMPLE], torch.finfo(scores.dtype).eps ** 0.75
    share = sample.shape[1] / relative.shape[1]
    guess = find_shift(Rows(sample, eps), low, steps=8, accuracy=1e-5, share=share)
    shift = find_shift(Rows(relative, eps), low, steps=100, accuracy=accuracy, start=guess)
    return torch.bmm(weights(relative, shift, eps).view(value.shape[0], -1, value.shape[1]), value)


def read_out(problem: RetrievalProblem, state: Tensor, key: Tensor, value: Tensor) -> Tensor | None:
    """One step of a problem to which this shortcut [`applies`]; `None` if a score is not finite."""
    assert isinstance(problem.alpha, float)  # `applies` has checked it
    eps = problem.alpha - 1
    (batch, heads, queries, width), (kv_heads, keys) = state.shape, key.shape[1:3]
    shape = (batch, heads, queries, value.shape[3])
    scores = torch.bmm(
        (state * (problem.scaling * problem.beta)).reshape(batch * kv_heads, -1, width),
        key.reshape(batch * kv_heads, keys, width).transpose(1, 2),
    ).view(-1, keys)
    if keys % UNIT:
        scores = F.pad(scores, (0, -keys % UNIT), value=-torch.inf)
    with np.errstate(all="ignore"):  # no warnings for scores that are not finite, or nearly so
        support = find_support(scores.numpy(), group_maxima(scores).numpy(), eps)
    if support is None:
        output = _read_dense(scores[:, :keys], eps, value.reshape(batch * kv_heads, keys, -1))
        return None if output is None else output.view(shape)
    row, column, weight, counts = support
    place = (row // (heads // kv_heads * queries) * keys + column).astype(np.int32)
    places, sizes, entries = (torch.from_numpy(x) for x in (place, counts, weight))
    return weighted_sums(places, value.reshape(-1, value.shape[3]), sizes, entries).view(shape)


def applies(problem: RetrievalProblem) -> bool:
    """Whether few queries see all keys, in a form that [`read_out`] serves (without gradient or dropout)."""
    (batch, heads, queries), keys = problem.query.shape[:3], problem.key.shape[2]
    return (
        isinstance(problem.alpha, float)
        and isinstance(problem.beta, float)
        and problem.alpha >= 1 + PLAIN_EPS
        and problem.mask is problem.bias is problem.sinks is problem.softcap is problem.sliding_window is None
        and (queries == 1 or not problem.is_causal)
        and keys >= UNIT
        and 0 < batch * heads * queries * keys <= _MAX_SCORES
        and problem.value.shape[3] > 0
        and problem.query.device.type == "cpu"
        and problem.query.dtype in (torch.float32, torch.float64)
        and not torch.is_autocast_enabled("cpu")
    )
