# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Supports of rows, found without normalizing whole rows.

The threshold of any part of a row is a lower bound of the row's own. The maxima of strided groups of keys give a bound
that is nearly exact, so one pass over the scores leaves a handful of candidates per row. They are solved exactly.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .positions import divided
from .solver import Rows, find_shift, powers, weights


# A block goes the dense way if this share of its groups of keys, or of its keys, may be in a support. Measured: a
# candidate costs about 30 times as much as an entry of a dense block.
DENSE_GROUPS = 0.35
DENSE_KEYS = 0.04
_BOUND_STEPS = 4


@dataclass(frozen=True)
class Bounds:
    """
    Bounds of rows that are not solved yet; all of shape `(..., 1)`.

    Args:
        maximum (`torch.Tensor`): Maximum of each row, the sink included.
        origin (`torch.Tensor`): The zero of relative scores: the maximum, or 0 in an empty row.
        shift (`torch.Tensor`): Lower bound of the shift.
    """

    maximum: Tensor
    origin: Tensor
    shift: Tensor


@dataclass(frozen=True)
class Support:
    """
    The entries of rows that have weight, row by row.

    Args:
        row, column (`torch.LongTensor` of shape `(n,)`): Places of the entries in the block.
        weight (`torch.Tensor` of shape `(n,)`): Their weights. A few may be zero.
        counts (`torch.LongTensor` of shape `(rows,)`): Number of entries of each row.
        sink_weight (`torch.Tensor` of shape `(1, rows)`, *optional*): Weight of the sink of each row.
    """

    row: Tensor
    column: Tensor
    weight: Tensor
    counts: Tensor
    sink_weight: Tensor | None


class _Candidates(NamedTuple):
    """Row, column and score of every entry that may be in a support, row by row."""

    row: Tensor
    column: Tensor
    score: Tensor


def first_bounds(rows: Rows, maximum: Tensor) -> Bounds:
    """The bounds that the maximum of the scores of each row gives."""
    if rows.sink is not None:
        maximum = torch.maximum(maximum, rows.sink)
    origin = maximum.masked_fill(maximum == -torch.inf, 0)
    return Bounds(maximum, origin, torch.zeros_like(origin))


def group_maxima(scores: Tensor) -> Tensor:
    """Maxima of strided groups of keys, `(rows, groups)`, of scores `(rows, keys)`."""
    rows, keys = scores.shape
    members = 16 if keys >= 512 else 8 if keys >= 256 else 4  # leaves 32 groups or more: fewer are not vectorised
    return scores.view(rows, members, keys // members).amax(1)


def find_support(rows: Rows, may_be_empty: bool = True) -> tuple[Bounds, Support | None]:
    """
    Solve rows on the few scores above a lower bound.

    Args:
        rows ([`Rows`]): Rows with scores of shape `(rows, keys)`.
        may_be_empty (`bool`, *optional*, defaults to `True`): Whether a row may hold only -inf.

    Returns:
        `tuple`: The bounds of the rows, and their support; `None` if that is large.
    """
    scores, eps = rows.scores, rows.eps
    maxima = group_maxima(scores)
    bounds = first_bounds(rows, maxima.amax(-1, keepdim=True))
    origin = bounds.origin
    sink = None if rows.sink is None else rows.sink - origin
    grouped = Rows(maxima - origin, eps, sink)
    shift = find_shift(grouped, bounds.shift, steps=_BOUND_STEPS, may_be_empty=may_be_empty)
    # Rounding must not cut off entries of the support.
    margin = 4 * torch.finfo(scores.dtype).eps
    shift.mul_(1 - margin)
    bounds = Bounds(bounds.maximum, origin, shift)
    reach = 1 / eps if isinstance(eps, float) else eps.reciprocal()
    floor = (origin + shift).sub_(reach * (1 + margin)).sub_(origin.abs(), alpha=margin)
    candidates = _candidates(scores, maxima, floor)
    if candidates is None:
        return bounds, None
    return bounds, _solve_candidates(candidates, Rows(scores, eps, sink), bounds, may_be_empty)


def _places_above(values: Tensor, floor: Tensor) -> Tensor:
    """Flat positions of the entries of `values`, `(n, m)`, above `floor`, `(n, 1)`."""
    if values.device.type == "cpu":
        return torch.from_numpy(np.flatnonzero((values > floor).numpy()))  # several times as fast as `nonzero`
    return (values > floor).view(-1).nonzero().squeeze(1)


def _candidates(scores: Tensor, maxima: Tensor, floor: Tensor) -> _Candidates | None:
    """Every entry above the floor of its row; `None` if there are many."""
    (_, keys), groups = scores.shape, maxima.shape[1]
    found = _places_above(maxima, floor)
    if found.numel() > DENSE_GROUPS * maxima.numel():
        return None
    row = divided(found, groups)
    group = found - row * groups
    # A block has fewer than 2**31 scores.
    member = torch.arange(0, keys, groups, dtype=torch.int32, device=scores.device)
    places = (row * keys + group).int()[:, None] + member
    score = scores.view(-1).index_select(0, places.view(-1))
    chosen = _places_above(score.view(-1, member.numel()), floor.view(-1).index_select(0, row)[:, None])
    if chosen.numel() > DENSE_KEYS * scores.numel():
        return None
    found = divided(chosen, member.numel())
    column = group.index_select(0, found) + (chosen & (member.numel() - 1)) * groups  # a power of two
    return _Candidates(row.index_select(0, found), column, score.index_select(0, chosen))


def _solve_candidates(candidates: _Candidates, rows: Rows, bounds: Bounds, may_be_empty: bool) -> Support | None:
    """Solve rows on their candidates alone, with a sink relative to the origin; `None` if one row has too many."""
    scores, eps, sink = rows.scores, rows.eps, rows.sink
    row, column, score = candidates
    count = scores.shape[0]
    counts = torch.bincount(row, minlength=count)
    width = int(counts.max())
    if width * count > scores.numel() // 8 + 8 * row.numel():
        return None  # with one long row among short ones, the table is hardly smaller than the block
    # One column per row: sums over the first dimension are vectorised, however few candidates there are.
    start = counts.cumsum(0).sub_(counts)
    place = (torch.arange(row.numel(), device=row.device) - start.index_select(0, row)).mul_(count).add_(row)
    table = scores.new_full((width * count,), -torch.inf).index_copy_(0, place, score).view(width, count)
    table -= bounds.origin.view(1, -1)
    eps = eps if isinstance(eps, float) else eps.view(1, -1)
    sink = None if sink is None else sink.view(1, -1)
    accuracy = 2 * torch.finfo(scores.dtype).eps
    low = bounds.shift.view(1, -1)
    shift = find_shift(Rows(table, eps, sink), low, steps=100, accuracy=accuracy, dim=0, may_be_empty=may_be_empty)
    weight = weights(table, shift, eps).view(-1).index_select(0, place)
    # A candidate without weight does not change the result; keeping a few costs less than removing them.
    if 8 * int(weight.count_nonzero()) < 7 * weight.numel():
        inside = weight.nonzero().squeeze(1)
        row, column, weight = (x.index_select(0, inside) for x in (row, column, weight))
        counts = torch.bincount(row, minlength=count)
    return Support(row, column, weight, counts, None if sink is None else powers(sink, shift, eps)[0])
