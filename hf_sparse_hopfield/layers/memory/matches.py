# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""What a memory finds for queries ([`MemoryMatches`], [`MemoryTrace`]), computed from the patterns that may have weight."""

from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from ...functional import conjugate, entmax
from .segments import Segment


_NUMBERS_AT_ONCE = 2**26  # of patterns that are brought together


@dataclass
class MemoryMatches:
    """
    The patterns of a memory that have weight for queries. `...` are the leading dimensions of the queries.

    Args:
        rows (`torch.LongTensor` of shape `(..., most)`):
            The names of the patterns, those with most weight first, then -1. `most` is the largest number for a query.
        weights (`torch.Tensor` of shape `(..., most)`):
            Their weights, in float32 or better, then 0. The weights of a query sum to 1.
        output (`torch.Tensor` of shape `(..., d)`): The retrieved patterns.
        energies (`torch.Tensor` of shape `(steps, ...)`): The energy of the state before each step. It never rises.
    """

    rows: Tensor
    weights: Tensor
    output: Tensor
    energies: Tensor


@dataclass
class MemoryTrace:
    """
    A retrieval from [`HopfieldMemory`] with its intermediate states. `...` are the leading dimensions of the queries.

    Args:
        output (`torch.Tensor` of shape `(..., d)`): The retrieved patterns.
        weights (`torch.Tensor` of shape `(..., M)`): Weight of each stored pattern in the last step.
        steps_used (`torch.LongTensor` of shape `(...)`): Steps of each query; fewer than `steps` if it stopped by
            tolerance.
        states (`torch.Tensor` of shape `(steps + 1, ..., d)`): The query and the state after each step.
        energies (`torch.Tensor` of shape `(steps + 1, ...)`): Energy of each of the states. It never rises.
    """

    output: torch.Tensor
    weights: torch.Tensor
    steps_used: torch.Tensor
    states: torch.Tensor
    energies: torch.Tensor


@dataclass
class Candidates:
    """
    Patterns that may have weight for queries.

    Args:
        vectors (`torch.Tensor` of shape `(n, most, d)`): For each query its candidates, in float32 or better.
        rows (`torch.LongTensor` of shape `(n, most)`): Their names.
        present (`torch.BoolTensor` of shape `(n, most)`): `False` where a query has fewer.
    """

    vectors: Tensor
    rows: Tensor
    present: Tensor

    def scores(self, states: Tensor, beta: float) -> Tensor:
        """The scores of states `(n, d)`, -inf where there is no candidate."""
        scores = beta * (self.vectors @ states.unsqueeze(-1)).squeeze(-1)
        return scores.masked_fill(~self.present, -torch.inf)


class Finder(Protocol):
    """What finds the candidates of states `(n, d)`: a memory, or several processes that have a part each."""

    def places(self, states: Tensor) -> list[Tensor]:
        """The places of the candidates in each segment, `(n, most)`, then -1."""
        ...

    def at_once(self, places: list[Tensor]) -> int:
        """How many queries to take at a time, so that their candidates fit into memory."""
        ...

    def gather(self, states: Tensor, places: list[Tensor]) -> Candidates:
        """Bring the candidates together. All patterns that have weight are among them."""
        ...


def candidates_at(segments: list[Segment], places: list[Tensor]) -> Candidates:
    """
    Bring patterns together.

    Args:
        segments (`list[Segment]`): The segments.
        places (`list[torch.LongTensor]` of shapes `(n, most)`): The candidates of queries in each of them, then -1.
    """
    vectors, rows, present = [], [], []
    for segment, place in zip(segments, places, strict=True):
        inside = place.clamp_min(0)
        vectors.append(segment.patterns[inside].to(torch.promote_types(segment.patterns.dtype, torch.float32)))
        rows.append(segment.rows[inside])
        present.append(place >= 0)
    return Candidates(torch.cat(vectors, 1), torch.cat(rows, 1), torch.cat(present, 1))


def fitting_queries(candidates: int, width: int) -> int:
    """How many queries with so many candidates of some width fit into memory."""
    return max(1, _NUMBERS_AT_ONCE // max(1, width * candidates))


def match(finder: Finder, queries: Tensor, alpha: float, beta: float, steps: int, tolerance: float) -> MemoryMatches:
    """
    Retrieve from candidates.

    Args:
        finder ([`Finder`]): Finds them.
        queries (`torch.Tensor` of shape `(n, d)`): The queries.
        alpha, beta, steps, tolerance: As for [`HopfieldMemory.search`].

    Returns:
        [`MemoryMatches`]: With one leading dimension.
    """
    states = queries.to(torch.promote_types(queries.dtype, torch.float32))
    places = finder.places(states)
    size = finder.at_once(places)
    with torch.autocast(states.device.type, enabled=False):  # autocast would round float32
        parts = [
            _match(finder, some, [place[n * size : (n + 1) * size] for place in places], alpha, beta, steps, tolerance)
            for n, some in enumerate(states.split(size))
        ]
    found = _joined(parts)
    found.output = found.output.to(queries.dtype)
    return found


def _match(
    finder: Finder, states: Tensor, places: list[Tensor], alpha: float, beta: float, steps: int, tolerance: float
) -> MemoryMatches:
    energies, moving = [], torch.ones(len(states), 1, dtype=torch.bool, device=states.device)
    for step in range(steps):
        candidates = finder.gather(states, finder.places(states) if step else places)
        scores = candidates.scores(states, beta)
        weights = entmax(scores, alpha)
        energies.append(states.square().sum(-1) / 2 - conjugate(scores, alpha) / beta)
        output = (weights.unsqueeze(-2) @ candidates.vectors).squeeze(-2)
        if step < steps - 1:
            moved = (output - states).detach().norm(dim=-1, keepdim=True)
            states = torch.where(moving, output, states)
            moving = moving & ~(moved < tolerance)
    most = int((weights > 0).sum(-1).max()) if weights.numel() else 0
    weights, order = torch.sort(weights, dim=-1, descending=True, stable=True)
    rows = candidates.rows.gather(-1, order).masked_fill(weights == 0, -1)
    return MemoryMatches(rows[:, :most], weights[:, :most], output, torch.stack(energies))


def _joined(parts: list[MemoryMatches]) -> MemoryMatches:
    """The matches of several groups of queries as one."""
    most = max(part.rows.shape[1] for part in parts)
    return MemoryMatches(
        torch.cat([F.pad(part.rows, (0, most - part.rows.shape[1]), value=-1) for part in parts]),
        torch.cat([F.pad(part.weights, (0, most - part.weights.shape[1])) for part in parts]),
        torch.cat([part.output for part in parts]),
        torch.cat([part.energies for part in parts], 1),
    )
