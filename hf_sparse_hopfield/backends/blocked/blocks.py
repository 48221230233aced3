# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Blocks of scores for the `blocked` backend: which keys they cover, how they are computed, how a row is solved."""

import functools
import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ...functional.normalizers import _powers, _ratio


# Scores of a block: as many as hide what calling some hundred operators costs. Queries of a block, with and without a
# diagonal: what lies beyond it is computed for nothing, and fewer, larger matrix products are faster ones.
_BLOCK_ENTRIES = 3 << 20
_BLOCK_QUERIES = 256
_FULL_BLOCK_QUERIES = 1024
# Key ranges are multiples of this, so that strided groups of up to 16 keys cover them.
UNIT = 128
# A block goes the dense way if this share of its groups of keys, or of its keys, may be in a support. Measured: a
# candidate costs about 30 times as much as an entry of a dense block.
DENSE_GROUPS = 0.35
DENSE_KEYS = 0.04
_BOUND_STEPS = 4
# From here up, powers of `1 + eps y` are accurate in the plain form; below, they need log1p and expm1.
PLAIN_EPS = 0.05


# Row, column and weight of each entry, the number of entries of each row, and the weights of the sinks.
Support = tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]


@dataclass(frozen=True)
class Block:
    """Rows that are computed together (all query heads of a kv head) and the range of keys any of them can see."""

    batches: slice
    heads: slice
    queries: slice
    first: int
    stop: int


def _whole_power(base: Tensor, exponent: int) -> Tensor:
    """`base ** exponent` by products, which are several times as fast as a general power."""
    result = None
    while exponent:
        if exponent & 1:
            result = base if result is None else result * base
        exponent >>= 1
        if exponent:
            base = base * base
    return result


def powers(z: Tensor, t: Tensor, eps: float | Tensor, slopes: bool = True) -> tuple[Tensor, Tensor | None]:
    """
    `p = [1 + eps (z - t)]_+ ^ (1 / eps)` and its slope `w = p^(1 - eps)`, see `functional.normalizers`.

    Args:
        z (`torch.Tensor` of shape `(..., n)`): Scores relative to the maximum of their row; -inf gives zero.
        t (`torch.Tensor` of shape `(..., 1)`): Shift.
        eps (`float` or `torch.Tensor` of shape `(..., 1)`): alpha - 1.
        slopes (`bool`, *optional*, defaults to `True`): Whether the slopes are needed.
    """
    if not isinstance(eps, float):
        return _powers((z - t).clamp_min_(torch.finfo(z.dtype).min), eps)  # eps may be 0, and 0 times -inf is NaN
    if eps == 0.0:
        p = (z - t).exp_()
        return p, p
    if eps < PLAIN_EPS:
        return _powers(z - t, eps)
    base = (z - (t - 1) if eps == 1.0 else torch.add(1 - eps * t, z, alpha=eps)).clamp_min_(0)
    exponent = 1 / eps - 1
    if exponent < 1e-12:
        return base, base.sign() if slopes else None
    if abs(exponent - round(exponent)) < 1e-12 and exponent < 10:
        w = _whole_power(base, round(exponent))
    else:
        w = base.log().mul_(exponent).exp_()
    return w * base, w


def find_shift(
    z: Tensor,
    low: Tensor,
    eps: float | Tensor,
    sink: Tensor | None,
    steps: int,
    accuracy: float | None = None,
    dim: int = -1,
    start: Tensor | None = None,
    share: float = 1.0,
    may_be_empty: bool = True,
) -> Tensor:
    """
    Newton's method for the shift of each row. It rises from any lower bound and never passes the root; from above the
    root, its first step falls below.

    Args:
        z (`torch.Tensor` of shape `(..., n)`): Scores relative to the maximum of their row; -inf is masked.
        low (`torch.Tensor` of shape `(..., 1)`): Lower bound of the shift.
        eps (`float` or `torch.Tensor` of shape `(..., 1)`): alpha - 1.
        sink (`torch.Tensor` of shape `(..., 1)`, *optional*): One more score.
        steps (`int`): Upper limit of steps.
        accuracy (`float`, *optional*): Ends once no row moves by more, relative to what a shift can be.
        dim (`int`, *optional*, defaults to -1): Dimension of `z` that is a row.
        start (`torch.Tensor` of shape `(..., 1)`, *optional*, defaults to `low`): Where to begin.
        share (`float`, *optional*, defaults to 1.0): Part of the row that `z` is a sample of.
        may_be_empty (`bool`, *optional*, defaults to `True`): Whether a row may have nothing but -inf.
    """
    t = low if start is None else start
    plain = isinstance(eps, float) and eps >= PLAIN_EPS
    if accuracy is not None:
        accuracy *= max(1.0, math.log(max(z.shape[dim] / share, 1)))  # no shift is larger than that of a flat row
    for _ in range(steps):
        p, w = powers(z, t, eps)
        total, slope = p.sum(dim, keepdim=True), w.sum(dim, keepdim=True)
        if share != 1.0:
            total, slope = total / share, slope / share
        if sink is not None:
            p, w = powers(sink, t, eps)
            total, slope = total + p, slope + w
        if plain:
            step = (total - 1).div_(slope) if eps == 1.0 else (total - total.pow(1 - eps)).div_(slope * eps)
        else:
            log_total = total.log()
            step = log_total * _ratio(torch.expm1, eps * log_total) * ((1 - eps) * log_total).exp() / slope
        # No slope: there is nothing to choose from, or the start was far beyond the root.
        new = torch.where(slope > 0, step.add_(t), low) if may_be_empty else step.add_(t)
        if start is not None:
            new = torch.maximum(new, low)
        # a comparison is false for NaN: a row that is lost does not hold up, nor end, the others
        settled = accuracy is not None and not ((new - t).abs_() > accuracy).any()
        t = new
        if settled:
            break
    return t


def origin_of(maximum: Tensor) -> Tensor:
    """What scores are measured from: their maximum, or 0 in a row with nothing to attend to."""
    return maximum.masked_fill(maximum == -torch.inf, 0)


def group_maxima(scores: Tensor) -> Tensor:
    """Maxima of strided groups of keys, `(rows, groups)`, of scores `(rows, keys)`."""
    rows, keys = scores.shape
    members = 16 if keys >= 512 else 8 if keys >= 256 else 4  # leaves 32 groups or more: fewer are not vectorised
    return scores.view(rows, members, keys // members).amax(1)


def solve_sparse(
    scores: Tensor, eps: float | Tensor, sink: Tensor | None, may_be_empty: bool = True
) -> tuple[Tensor, Tensor, Tensor, Support | None]:
    """
    Solve the rows of a block on the few scores above a lower bound.

    Args:
        scores (`torch.Tensor` of shape `(rows, keys)`): Scores.
        eps (`float` or `torch.Tensor` of shape `(rows, 1)`): alpha - 1.
        sink (`torch.Tensor` of shape `(rows, 1)`, *optional*): One more score of each row.
        may_be_empty (`bool`, *optional*, defaults to `True`): Whether a row may have nothing but -inf.

    Returns:
        `tuple`: Maximum and origin of each row, a lower bound of its shift, and its support; `None` if that is large.
    """
    rows, keys = scores.shape
    maxima = group_maxima(scores)
    maximum = maxima.amax(-1, keepdim=True)
    if sink is not None:
        maximum = torch.maximum(maximum, sink)
    origin = origin_of(maximum)
    relative_sink = None if sink is None else sink - origin
    low = torch.zeros_like(origin)
    t = find_shift(maxima - origin, low, eps, relative_sink, _BOUND_STEPS, may_be_empty=may_be_empty)
    t.mul_(1 - 4 * torch.finfo(scores.dtype).eps)
    reach = 1 / eps if isinstance(eps, float) else eps.reciprocal()
    # Rounding must not cut off what belongs to the support.
    margin = 4 * torch.finfo(scores.dtype).eps
    floor = (origin + t).sub_(reach * (1 + margin)).sub_(origin.abs(), alpha=margin)
    support = _many_rows(scores, eps, relative_sink, maxima, floor, origin, t, may_be_empty)
    return maximum, origin, t, support


def divided(numbers: Tensor, by: int) -> Tensor:
    """`numbers // by` for numbers that are not negative: a shift where that will do, which is three times as fast."""
    return numbers >> by.bit_length() - 1 if by & (by - 1) == 0 else numbers // by


def _places_above(values: Tensor, floor: Tensor) -> Tensor:
    """Flat positions of the entries of `values`, `(n, m)`, above `floor`, `(n, 1)`."""
    if values.device.type == "cpu":
        return torch.from_numpy(np.flatnonzero((values > floor).numpy()))  # several times as fast as `nonzero`
    return (values > floor).view(-1).nonzero().squeeze(1)


def _candidates(scores: Tensor, maxima: Tensor, floor: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
    """Row, column and score of every entry above the floor of its row, row by row; `None` if they are many."""
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
    return row.index_select(0, found), column, score.index_select(0, chosen)


def _many_rows(
    scores: Tensor,
    eps: float | Tensor,
    sink: Tensor | None,
    maxima: Tensor,
    floor: Tensor,
    origin: Tensor,
    t: Tensor,
    may_be_empty: bool,
) -> Support | None:
    """[`solve_sparse`] on the candidates alone; `None` if these are many."""
    rows = scores.shape[0]
    candidates = _candidates(scores, maxima, floor)
    if candidates is None:
        return None
    row, column, score = candidates
    counts = torch.bincount(row, minlength=rows)
    width = int(counts.max())
    if width * rows > scores.numel() // 8 + 8 * row.numel():
        return None  # one long row among short ones: as a table they are hardly smaller than the block
    # One column a row: sums over the first dimension are vectorised, however few candidates there are.
    start = counts.cumsum(0).sub_(counts)
    place = (torch.arange(row.numel(), device=row.device) - start.index_select(0, row)).mul_(rows).add_(row)
    table = scores.new_full((width * rows,), -torch.inf).index_copy_(0, place, score).view(width, rows)
    t, eps, origin = t.view(1, -1), eps if isinstance(eps, float) else eps.view(1, -1), origin.view(1, -1)
    table -= origin
    sink = None if sink is None else sink.view(1, -1)
    accuracy = 2 * torch.finfo(scores.dtype).eps
    t = find_shift(table, t, eps, sink, 100, accuracy, dim=0, may_be_empty=may_be_empty)
    weight = powers(table, t, eps, slopes=False)[0].view(-1).index_select(0, place)
    # A candidate without weight changes no result: a few of them cost less than taking them out.
    if 8 * int(weight.count_nonzero()) < 7 * weight.numel():
        inside = weight.nonzero().squeeze(1)
        row, column, weight = (x.index_select(0, inside) for x in (row, column, weight))
        counts = torch.bincount(row, minlength=rows)
    return row, column, weight, counts, None if sink is None else powers(sink, t, eps)[0]


class Scores:
    """
    What makes scores, in the precision of the computation and with the query heads that share a kv head side by side.

    Args:
        query (`torch.Tensor` of shape `(batch, heads, queries, head_dim)`): States.
        key (`torch.Tensor` of shape `(batch, kv_heads, keys, head_dim)`): Stored patterns.
        scaling (`float`): Factor on the scores, a plain beta included.
        beta (`torch.Tensor` of shape `(batch, heads, queries, 1)`, *optional*): Factor of each row.
        alpha (`torch.Tensor` of shape `(batch, heads, queries, 1)`, *optional*): alpha of each row.
        alpha_value (`float`): alpha if there is no tensor.
        mask, bias (`torch.Tensor` with four dimensions, *optional*): As in `RetrievalProblem`.
        sinks (`torch.Tensor` of shape `(heads,)`, *optional*): Logit of one more column.
        is_causal (`bool`), window (`int`, 0: none), softcap (`float`, 0: none): As in `RetrievalProblem`.
        factor (`float`): Plain factor after the softcap.
    """

    def __init__(
        self,
        query: Tensor,
        key: Tensor,
        scaling: float,
        factor: float,
        beta: Tensor | None,
        alpha: Tensor | None,
        alpha_value: float,
        mask: Tensor | None,
        bias: Tensor | None,
        sinks: Tensor | None,
        is_causal: bool,
        window: int,
        softcap: float,
    ):
        self.dtype = torch.promote_types(query.dtype, torch.float32)
        self.device = query.device
        self.batch, self.all_heads, self.queries, self.width = query.shape
        self.heads, self.keys = key.shape[1], key.shape[2]
        self.groups = self.all_heads // self.heads
        self.scaling, self.factor = scaling, factor
        self.is_causal, self.window, self.softcap = is_causal, window, softcap
        self.query = self.grouped(query)
        self.finite: bool | None = None
        # One table of all stored patterns: supports are indices into it.
        self.key = key.to(self.dtype).contiguous()
        self.beta, self.alpha = self.grouped(beta), self.grouped(alpha)
        self.alpha_value = alpha_value
        self.mask, self.bias = self.grouped(mask, torch.bool), self.grouped(bias)
        self.sinks = None if sinks is None else sinks.to(self.dtype).view(1, self.heads, self.groups, 1, 1)
        self.may_be_empty = mask is not None or bias is not None or (is_causal and self.keys < self.queries)
        self.dense_only = self.keys < UNIT or (alpha is None and alpha_value == 1.0)
        self.unit = 1 if self.dense_only else UNIT
        missing = -self.keys % self.unit
        # Padding the keys copies them: for a few queries it is cheaper to pad the scores.
        few = self.queries * self.groups < 64
        self.padded_key = F.pad(self.key, (0, 0, 0, missing)) if missing and not few else self.key

    def grouped(self, tensor: Tensor | None, dtype: torch.dtype | None = None) -> Tensor | None:
        """`(batch, heads, n, m)`, any of them possibly 1, with the heads taken apart into kv heads and their groups."""
        if tensor is None:
            return None
        heads = (self.heads, self.groups) if tensor.shape[1] == self.all_heads else (1, 1)
        return tensor.to(dtype or self.dtype).unflatten(1, heads)

    def blocks(self) -> list[Block]:
        """A partition of the rows; the same for the forward and the backward pass."""
        if 0 in (self.batch, self.heads, self.queries, self.keys):
            return []
        blocks = []
        limit = _BLOCK_ENTRIES // (self.groups * self.keys) // 16 * 16
        most = _BLOCK_QUERIES if self.is_causal else _FULL_BLOCK_QUERIES
        count = max(1 if self.groups * self.keys >= _BLOCK_ENTRIES else 16, min(most, limit))
        shift = self.keys - self.queries
        for start in range(0, self.queries, count):
            end = min(start + count, self.queries)
            first, stop = 0, self.keys
            if self.is_causal:
                stop = min(stop, end + shift)
                first = max(0, start + shift - self.window + 1) if self.window else 0
                if stop <= first:
                    continue  # no query of the block sees a key
            first, stop = first // self.unit * self.unit, -(-stop // self.unit) * self.unit
            at_once = max(1, _BLOCK_ENTRIES // (self.groups * (end - start) * (stop - first)))
            batches = max(1, at_once // self.heads)
            for b in range(0, self.batch, batches):
                for h in range(0, self.heads, min(at_once, self.heads)):
                    heads = slice(h, min(h + at_once, self.heads))
                    blocks.append(Block(slice(b, min(b + batches, self.batch)), heads, slice(start, end), first, stop))
        return blocks

    def entries(self, block: Block) -> int:
        """Number of scores of a block."""
        heads = (block.batches.stop - block.batches.start) * (block.heads.stop - block.heads.start)
        return heads * self.groups * (block.queries.stop - block.queries.start) * (block.stop - block.first)

    def rows(self, tensor: Tensor | None, block: Block) -> Tensor | None:
        """The rows of a block: `(kv heads of the block, groups * queries, m)` of a grouped tensor."""
        if tensor is None:
            return None
        part = tensor[block.batches, block.heads, :, block.queries]
        return part.reshape(-1, part.shape[2] * part.shape[3], part.shape[4])

    def store(self, tensor: Tensor, block: Block, rows: Tensor) -> None:
        """The inverse of [`Scores.rows`]."""
        part = tensor[block.batches, block.heads, :, block.queries]
        part.copy_(rows.view(part.shape))

    def apart(self, scores: Tensor, block: Block) -> Tensor:
        """Scores of a block with all five dimensions: batch, kv heads, groups, queries, keys."""
        batches, queries = (cut.stop - cut.start for cut in (block.batches, block.queries))
        return scores.view(batches, -1, self.groups, queries, scores.shape[-1])

    @functools.cached_property
    def numbers(self) -> Tensor:
        """Number of each row, grouped."""
        shape = (self.batch, self.heads, self.groups, self.queries, 1)
        return torch.arange(self.batch * self.all_heads * self.queries, device=self.device).view(shape)

    def every_row(self, tensor: Tensor) -> Tensor:
        """A grouped setting with one value for each row."""
        return tensor.expand(self.numbers.shape)

    def bias_places(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Flat positions in a contiguous bias of entries given by row number and position in the table of keys."""
        sizes = (self.batch, self.heads, self.groups, self.queries, self.keys)
        rows = rows.long()
        places = [columns.long() % self.keys]
        for size in (self.queries, self.groups, self.heads):
            places.insert(0, rows % size)
            rows = rows // size
        places.insert(0, rows)
        flat, stride = torch.zeros_like(rows), 1
        for place, size, extent in zip(reversed(places), reversed(sizes), reversed(self.bias.shape), strict=True):
            if extent == size and size > 1:
                flat += place * stride
                stride *= size
        return flat

    def eps(self, block: Block) -> float | Tensor:
        """alpha - 1 of the rows of a block, `(kv heads, groups * queries, 1)` if it is a tensor."""
        return self.alpha_value - 1 if self.alpha is None else self.rows(self.alpha, block) - 1

    def sink(self, block: Block) -> Tensor | None:
        """Logit of the sink of each row of a block."""
        if self.sinks is None:
            return None
        return self.rows(self.sinks.expand(self.batch, -1, -1, self.queries, 1), block)

    def table_places(self, block: Block, row: Tensor, column: Tensor) -> Tensor:
        """Positions in the table of all keys of entries of a block."""
        # A block has whole batch entries or some heads of one: its kv heads lie behind each other in the table.
        first = (block.batches.start * self.heads + block.heads.start) * self.keys + block.first
        head = divided(row, self.groups * (block.queries.stop - block.queries.start))
        return head.mul_(self.keys).add_(column).add_(first).int()

    def stored(self, table: Tensor, block: Block) -> Tensor:
        """The stored patterns a block sees, `(kv heads, keys, m)`, of a table `(batch, kv_heads, keys, m)`."""
        return table[block.batches, block.heads, block.first : block.stop].flatten(0, 1)

    def scaled_query(self, block: Block) -> Tensor:
        """Rows of the query such that their products with keys are scores (or what the softcap is applied to)."""
        query = self.rows(self.query, block)
        if self.softcap:
            return query * (self.scaling / self.softcap)
        return query * (
            self.scaling * self.factor if self.beta is None else self.rows(self.beta, block) * self.scaling
        )

    def outer_factor(self, block: Block) -> float | Tensor:
        """Factor after the softcap."""
        return self.factor if self.beta is None else self.rows(self.beta, block)

    def part(self, tensor: Tensor, block: Block) -> Tensor:
        """The part of a grouped mask or bias that concerns a block; dimensions of size 1 stay."""
        cuts = (block.batches, block.heads, slice(None), block.queries, slice(block.first, block.stop))
        return tensor[tuple(cut if size > 1 else slice(None) for cut, size in zip(cuts, tensor.shape, strict=True))]

    def of(self, block: Block, scratch: Tensor | None = None) -> Tensor:
        """
        Scores of a block, -inf where a query may not attend.

        Args:
            block (`Block`): Which.
            scratch (`torch.Tensor`, *optional*): Memory that may be written to.

        Returns:
            `torch.Tensor` of shape `(kv heads, groups * queries, block.stop - block.first)`, contiguous.
        """
        query = self.scaled_query(block)
        key = self.stored(self.padded_key, block)
        shape = (*query.shape[:2], key.shape[1])
        if scratch is None:
            scores = torch.bmm(query, key.transpose(1, 2))
        else:
            scores = scratch[: shape[0] * shape[1] * shape[2]].view(shape)
            torch.bmm(query, key.transpose(1, 2), out=scores)
        if self.softcap:
            scores.tanh_().mul_(self.outer_factor(block) * self.softcap)
        missing = block.stop - block.first - scores.shape[2]
        if missing:
            scores = F.pad(scores, (0, missing))
        real = min(block.stop, self.keys) - block.first
        if real < scores.shape[2]:
            scores[..., real:] = -torch.inf
        apart = self.apart(scores, block)
        if self.bias is not None:
            apart[..., :real].add_(self.part(self.bias, block))
        if self.mask is not None:
            apart[..., :real].masked_fill_(~self.part(self.mask, block), -torch.inf)
        if self.is_causal:
            self._hide(apart, block)
        return scores

    def capped(self, block: Block) -> Tensor:
        """`tanh(score / softcap)` of a block, without anything else."""
        key = self.stored(self.padded_key, block)
        return torch.bmm(self.scaled_query(block), key.transpose(1, 2)).tanh_()

    def _hide(self, scores: Tensor, block: Block) -> None:
        """Mask the two corners of a block that the diagonal and the window cut off."""
        last = (
            torch.arange(block.queries.start, block.queries.stop, device=self.device)[:, None]
            + self.keys
            - self.queries
        )
        right = max(0, block.queries.start + self.keys - self.queries + 1 - block.first)
        if right < scores.shape[-1]:
            keys = torch.arange(block.first + right, block.stop, device=self.device)
            self._fill(scores[..., right:], keys > last)
        if self.window:
            left = min(block.queries.stop + self.keys - self.queries - self.window - block.first, scores.shape[-1])
            if left > 0:
                keys = torch.arange(block.first, block.first + left, device=self.device)
                self._fill(scores[..., :left], keys <= last - self.window)

    def _fill(self, scores: Tensor, hidden: Tensor) -> None:
        """-inf where `hidden`. A minimum is three times as fast as `masked_fill_`, but NaN would shine through it."""
        if self.finite is None:
            self.finite = bool((self.query.sum() + self.key.sum()).isfinite())
        if self.finite:
            limit = torch.full(hidden.shape, torch.inf, dtype=self.dtype, device=self.device)
            torch.minimum(scores, limit.masked_fill_(hidden, -torch.inf), out=scores)
        else:
            scores.masked_fill_(hidden, -torch.inf)
