# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The forward pass: block by block, the sparse way where supports are small and the dense way elsewhere."""

import contextlib
from typing import NamedTuple

import torch
from torch import Tensor

from ..masks import without_unseen
from .dense_pieces import cut, pieces
from .dropout import Dropout
from .layout import Block, Layout
from .partition import is_always_dense, partition
from .positions import key_places, row_numbers
from .scores import Scores
from .settings import Settings
from .solver import Rows, find_shift, powers, weights
from .sparse_rows import weighted_sums
from .support import Bounds, Support, find_support, first_bounds


# Dense rows of at least this many keys start from the solution of every eighth of them.
_SAMPLED_KEYS = 512
_SAMPLE = 8


class Kept(NamedTuple):
    """
    The tensors that the forward pass keeps for the backward pass.

    Args:
        rows (`torch.IntTensor` of shape `(n,)`): Row numbers of the entries of all supports, block by block.
        columns (`torch.IntTensor` of shape `(n,)`): Their positions in the table of all keys.
        weights (`torch.Tensor` of shape `(n,)`): Their weights.
        counts (`torch.IntTensor` of shape `(batch, heads, queries, 1)`):
            Size of the support of each row; -1 for the rows of dense blocks.
        solution (`torch.Tensor` of shape `(batch, heads, queries, 3)`):
            Origin and shift of the rows of dense blocks, and the weight of the sink of every row.
    """

    rows: Tensor
    columns: Tensor
    weights: Tensor
    counts: Tensor
    solution: Tensor


def full_precision(device: str) -> contextlib.AbstractContextManager:
    """Autocast would round scores inside the operators as well."""
    if torch.is_autocast_enabled(device):
        return torch.autocast(device, enabled=False)
    return contextlib.nullcontext()


def forward_pass(query: Tensor, key: Tensor, value: Tensor, settings: Settings, keep: bool) -> tuple[Tensor, Kept]:
    """
    One step of retrieval.

    Args:
        query, key, value (`torch.Tensor`): As in `RetrievalProblem`.
        settings ([`Settings`]): The settings of the call.
        keep (`bool`): Whether there may be a backward pass.

    Returns:
        `tuple`: The output, and the tensors for the backward pass, which are empty without `keep`.
    """
    result = forward_once(query, key, value, settings, keep)
    mask = settings.mask
    if mask is not None and not result[0].isfinite().all():  # a masked key or value may hold NaN or inf
        result = forward_once(query, without_unseen(key, mask), without_unseen(value, mask), settings, keep)
    return result


def forward_once(query: Tensor, key: Tensor, value: Tensor, settings: Settings, keep: bool) -> tuple[Tensor, Kept]:
    """[`forward_pass`] for stored patterns that are finite."""
    with full_precision(query.device.type):
        layout = Layout.of(query, key)
        scores = Scores(layout, query, key, settings)
        table = value.to(scores.dtype).contiguous()
        dropout, results = Dropout.of(settings), _Results(layout, table, keep)
        blocks, always_dense = partition(layout, settings), is_always_dense(layout, settings)
        scratch = table.new_empty(max((layout.score_count(block) for block in blocks), default=0))
        for index, block in enumerate(blocks):
            z, eps, sink = scores.of(block, scratch), *_solver_settings(scores, block)
            rows = Rows(z, eps, sink)
            if always_dense:
                bounds, support = first_bounds(rows, z.amax(-1, keepdim=True)), None
            else:
                bounds, support = find_support(_flat(rows), scores.may_have_empty_rows)
            if support is None:
                real = Rows(z[..., : layout.key_count(block)], eps, sink)
                results.add_dense(block, *_read_dense(real, bounds, layout.stored(table, block), dropout, index))
            else:
                columns = key_places(layout, block, support.row, support.column)
                output = _read_sparse(support, columns, bounds, table, dropout, index)
                results.add_sparse(block, output, support, columns)
        return results.output.flatten(1, 2).to(value.dtype), results.kept()


def _solver_settings(scores: Scores, block: Block) -> tuple[float | Tensor, Tensor | None]:
    return scores.row_settings.eps_of(block), scores.row_settings.sink_of(block)


def _flat(rows: Rows) -> Rows:
    """Rows of all heads under each other."""
    scores, eps, sink = rows.scores, rows.eps, rows.sink
    return Rows(
        scores.reshape(-1, scores.shape[-1]),
        eps.reshape(-1, 1) if isinstance(eps, Tensor) else eps,
        None if sink is None else sink.reshape(-1, 1),
    )


class _Results:
    """
    The tensors that the blocks write to.

    Args:
        layout ([`Layout`]): The sizes of the problem.
        table (`torch.Tensor` of shape `(batch, kv_heads, keys, value_dim)`): The values.
        keep (`bool`): Whether there may be a backward pass.
    """

    def __init__(self, layout: Layout, table: Tensor, keep: bool) -> None:
        self.layout, self.keep = layout, keep
        self.output = table.new_zeros(*layout.row_shape, table.shape[3])
        self.counts = torch.zeros(*layout.row_shape, 1, dtype=torch.int32, device=table.device)
        self.solution = table.new_zeros(*layout.row_shape, 3 if keep else 0)
        self.numbers = row_numbers(layout, table.device) if keep else None
        empty = torch.empty(0, dtype=torch.int32, device=table.device)
        self.supports = [(empty, empty.clone(), table.new_empty(0))]  # an operator may not return a tensor twice

    def add_dense(self, block: Block, output: Tensor, solution: Tensor) -> None:
        """Store a dense block."""
        self.layout.store(self.output, block, output)
        if self.keep:
            self.counts[block.batches, block.kv_heads, :, block.queries] = -1
            self.layout.store(self.solution, block, solution)

    def add_sparse(self, block: Block, output: Tensor, support: Support, columns: Tensor) -> None:
        """Store a sparse block; `columns` are the places of its support in the table of all keys."""
        self.layout.store(self.output, block, output)
        if self.numbers is not None:
            self.layout.store(self.counts, block, support.counts)
            if support.sink_weight is not None:
                self.layout.store(self.solution[..., 2:], block, support.sink_weight)
            numbers = self.layout.rows(self.numbers, block).flatten().index_select(0, support.row).int()
            self.supports.append((numbers, columns, support.weight))

    def kept(self) -> Kept:
        """The tensors for the backward pass."""
        rows, columns, weights = (
            torch.cat(parts) if self.keep else parts[0] for parts in zip(*self.supports, strict=True)
        )
        return Kept(rows, columns, weights, self.counts.flatten(1, 2), self.solution.flatten(1, 2))


def _read_sparse(
    support: Support, columns: Tensor, bounds: Bounds, table: Tensor, dropout: Dropout, index: int
) -> Tensor:
    """Output of a sparse block, from its support alone; `index` is the number of the block."""
    weight = support.weight
    if dropout.rate:
        weight = weight * dropout.factors(weight, index)
    output = weighted_sums(columns, table.view(-1, table.shape[3]), support.counts, weight)
    if not bounds.maximum.max() < torch.inf:  # a row with NaN or +inf has no solution and becomes NaN
        output = output.masked_fill(~(bounds.maximum < torch.inf), torch.nan)
    return output


def _read_dense(rows: Rows, bounds: Bounds, stored: Tensor, dropout: Dropout, index: int) -> tuple[Tensor, Tensor]:
    """
    Normalize a dense block as a whole. Overwrites its scores.

    Args:
        rows ([`Rows`]): Scores of shape `(kv heads, rows, keys)`.
        bounds ([`Bounds`]): Of these rows.
        stored (`torch.Tensor` of shape `(kv heads, keys, value_dim)`): The values that the block sees.
        dropout ([`Dropout`]): The dropout of the call.
        index (`int`): Number of the block.

    Returns:
        `tuple`: The output, and origin, shift and weight of the sink of each row.
    """
    z, eps = rows.scores, rows.eps
    origin, low = (x.view(*z.shape[:2], 1) for x in (bounds.origin, bounds.shift))
    sink = None if rows.sink is None else rows.sink - origin
    guess = _sampled_shift(Rows(z, eps, sink), origin, low) if z.shape[2] >= _SAMPLED_KEYS else None
    output = z.new_empty(*z.shape[:2], stored.shape[-1])
    solution = z.new_zeros(*z.shape[:2], 3)
    # After a step this small, the error is of the order of its square.
    accuracy = torch.finfo(z.dtype).eps ** 0.75
    for number, piece in enumerate(pieces(z.shape)):
        part = Rows(z[piece].sub_(origin[piece]), cut(eps, piece), cut(sink, piece))
        shift = find_shift(part, low[piece], steps=100, accuracy=accuracy, start=cut(guess, piece))
        p = weights(part.scores, shift, part.eps)
        if dropout.rate:
            p = p * dropout.factors(p, index, number + 1)
        output[piece] = torch.bmm(p, stored[piece[0]])
        sink_weight = torch.zeros_like(shift) if part.sink is None else powers(part.sink, shift, part.eps)[0]
        solution[piece] = torch.cat([origin[piece], shift, sink_weight], -1)
    return output, solution


def _sampled_shift(rows: Rows, origin: Tensor, low: Tensor) -> Tensor:
    """The shift of a sample of the keys. It is close to that of the row and saves half of the steps over all keys."""
    sample = rows.scores[..., ::_SAMPLE] - origin
    share = sample.shape[2] / rows.scores.shape[2]
    return find_shift(Rows(sample, rows.eps, rows.sink), low, steps=8, accuracy=1e-5, share=share)
