# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
r"""Retrieval whose queries and keys are spread over processes: exact, forward and backward, without moving a key.

**Thresholds merge.** With `eps = alpha - 1`, the weights of a row with scores `s` and shift `T` sum to

    S(T) = sum_j [1 + eps (s_j - T)]_+ ^ (1 / eps)

and entmax is the `T` with `S(T) = 1` (the usual threshold is `tau = eps T - 1`). `S` decreases in `T`, and it is a sum over
keys, so each process adds its own part. Let `T_r` be the solution on keys of process `r` alone, all of them or some. The sum
over all keys at `T_r` is at least the sum over these, which is 1; as `S` decreases, the solution of the whole row is at least
`T_r`. So every process solves its part, the largest `T_r` is a lower bound for all, and keys below the threshold that belongs
to it have no weight. From a lower bound, Newton's method rises to the solution and never passes it (see `functional.normalizers`),
and it needs two numbers per row and step: the sums of weights and of slopes over the keys that are left. For softmax the
first step is exact: it is the merging of logsumexp.

**What is sent.** Queries go out block by block, from the process that owns them to all others, and their outputs come back,
summed. In between travel a few numbers per row: maximum and bound, then two per step. In the backward pass: queries and
gradients out, their gradients back, and two numbers per row, the sums of `w` and `w g` in `w (g - mean of g under w)`.
Keys, values and their gradients stay where they are. No process holds more than a block of scores.
"""

import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..backends.blocked.solver import Rows, find_shift, newton_step, powers, weights
from ..backends.masks import without_unseen
from ..backends.multistep import last_state
from ..backends.problem import RetrievalProblem
from ..functional.normalizers import alpha_slope
from .processes import Processes


# Scores of one block of a process. A block takes some ten collectives, so it must be worth them; several temporaries of
# this size are in memory at a time.
_BLOCK_SCORES = 1 << 22
# The largest scores of a row that a process solves first.
_CANDIDATES = 64
# Newton's method needs about 4 steps from a good bound. This limit only ensures that no input can make it hang.
_MAX_STEPS = 100


@dataclass(frozen=True)
class Sharding:
    """
    Which process owns which queries and keys.

    Args:
        processes ([`Processes`]): The processes.
        queries (`tuple[int, ...]`): Number of queries of each process.
        keys (`tuple[int, ...]`): Number of keys of each process.
        query_positions (`torch.LongTensor` of shape `(all queries,)`): Position of each query, in the order of the processes.
        key_positions (`torch.LongTensor` of shape `(keys of this process,)`): Position of each key.
    """

    processes: Processes
    queries: tuple[int, ...]
    keys: tuple[int, ...]
    query_positions: Tensor
    key_positions: Tensor

    @classmethod
    def of(cls, processes: Processes, problem: RetrievalProblem, positions: Tensor | None) -> "Sharding":
        """Agree on a problem with the other processes, or raise in all of them."""
        query, key = problem.query, problem.key
        settings = _description(problem)
        own = [query.shape[2], key.shape[2], positions is not None, zlib.crc32(settings.encode())]
        everyone = processes.gather(own, query.device)
        if any(other[2:] != own[2:] for other in everyone):
            raise ValueError(
                "the processes of a context parallel group must pass equal arguments, up to the number of queries and keys; "
                f"process {processes.rank} has {settings}, positions {'given' if own[2] else 'None'}."
            )
        queries, keys = (tuple(other[i] for other in everyone) for i in (0, 1))
        first_query, first_key = (sum(counts[: processes.rank]) for counts in (queries, keys))
        device = query.device
        if positions is None:
            every = torch.arange(sum(queries), device=device) + sum(keys) - sum(queries)
            own_keys = torch.arange(first_key, first_key + key.shape[2], device=device)
            return cls(processes, queries, keys, every, own_keys)
        own_keys = positions.to(device)
        every = torch.zeros(sum(queries), dtype=torch.int64, device=device)
        every[first_query : first_query + query.shape[2]] = own_keys
        return cls(processes, queries, keys, processes.sum(every), own_keys)

    def blocks(self, rows_per_query: int) -> "Iterator[Block]":
        """Blocks of queries, the same ones in every process."""
        per_query = max(1, rows_per_query * max(self.keys))
        size = max(1, _BLOCK_SCORES // per_query)
        first = 0
        for owner, count in enumerate(self.queries):
            for start in range(0, count, size):
                stop = min(start + size, count)
                yield Block(owner, slice(start, stop), slice(first + start, first + stop))
            first += count


def _description(problem: RetrievalProblem) -> str:
    """What the processes must agree on. Limits on what a query sees may differ: each process applies them to its keys."""
    query, value = problem.query, problem.value
    tensors = (query, problem.key, value, problem.beta, problem.alpha, problem.sinks)
    learns = torch.is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in tensors)

    def of(setting: float | Tensor) -> Any:
        return "a tensor" if isinstance(setting, Tensor) else setting

    return (
        f"batch {query.shape[0]}, heads {query.shape[1]}, key/value heads {value.shape[1]}, head_dim {query.shape[3]}, "
        f"value_dim {value.shape[3]}, {query.dtype}, scaling {problem.scaling}, beta {of(problem.beta)}, "
        f"alpha {of(problem.alpha)}, steps {problem.steps}, tolerance {problem.tolerance}, softcap {problem.softcap}, "
        f"sinks {'None' if problem.sinks is None else 'given'}, gradients {'wanted' if learns else 'not wanted'}"
    )


class Block(NamedTuple):
    """Queries of one owner: which of its own, and which of all."""

    owner: int
    own: slice
    all: slice


@dataclass(frozen=True)
class _Call:
    """
    One evaluation of the normalizer: what is neither a differentiable tensor nor a query.

    Args:
        sharding ([`Sharding`]): Who owns what.
        problem ([`RetrievalProblem`]): The problem of this process; its mask and bias have all queries and its own keys.
        dtype (`torch.dtype`): Dtype of the computation.
    """

    sharding: Sharding
    problem: RetrievalProblem
    dtype: torch.dtype

    @property
    def has_sink(self) -> bool:
        """The column of the sinks belongs to the first process."""
        return self.problem.sinks is not None and self.sharding.processes.rank == 0

    def settings(self, rows: Tensor) -> "_Settings":
        """beta, eps and sink of the rows of a block from the numbers that travel with it, `(batch, heads, rows, n)`."""
        parts = iter(rows.unbind(-1))
        beta, alpha = self.problem.beta, self.problem.alpha
        return _Settings(
            next(parts)[..., None] if isinstance(beta, Tensor) else beta,
            next(parts)[..., None] - 1 if isinstance(alpha, Tensor) else alpha - 1,
            next(parts)[..., None] if self.problem.sinks is not None else None,
        )

    def visible_keys(self, block: Block) -> slice:
        """The keys that any query of a block may see; they are ordered, so what causality hides is not computed."""
        positions, problem = self.sharding.key_positions, self.problem
        if not problem.is_causal or not positions.numel() or bool((positions.diff() < 0).any()):
            return slice(0, positions.numel())
        queries = self.sharding.query_positions[block.all]
        stop = int(torch.searchsorted(positions, queries.max(), right=True))
        window = problem.sliding_window
        first = 0 if window is None else int(torch.searchsorted(positions, queries.min() - window, right=True))
        return slice(min(first, stop), stop)

    def scores(self, block: Block, keys: slice, query: Tensor, key: Tensor, settings: "_Settings") -> "_Scores":
        """Scores of a block of queries and some keys of this process, in the last column the sink if it is ours."""
        problem = self.problem
        product = _per_group(query, key.shape[1]) @ key.transpose(-1, -2) * problem.scaling
        plain = product.reshape(*query.shape[:3], key.shape[2])
        tanh = None
        if problem.softcap is not None:
            tanh = torch.tanh(plain / problem.softcap)
            plain = problem.softcap * tanh
        scores = settings.beta * plain
        if problem.bias is not None:
            scores = scores + _part(problem.bias, block.all, keys).to(self.dtype)
        if problem.mask is not None:
            scores = scores.masked_fill(~_part(problem.mask, block.all, keys), -torch.inf)
        if problem.is_causal:
            queries = self.sharding.query_positions[block.all, None]
            positions = self.sharding.key_positions[keys]
            hidden = positions > queries
            if problem.sliding_window is not None:
                hidden = hidden | (positions <= queries - problem.sliding_window)
            scores = scores.masked_fill(hidden, -torch.inf)
        if self.has_sink:
            assert settings.sink is not None
            scores = torch.cat([scores, settings.sink], -1)
        return _Scores(scores, plain, tanh)


class _Settings(NamedTuple):
    """Of the rows of a block; tensors have the shape `(batch, heads, rows, 1)`."""

    beta: float | Tensor
    eps: float | Tensor
    sink: Tensor | None


class _Scores(NamedTuple):
    """Scores; the same before beta, bias, masks and sink; and the tanh of the softcap."""

    scores: Tensor
    plain: Tensor
    tanh: Tensor | None


def _per_group(tensor: Tensor, kv_heads: int) -> Tensor:
    """`(batch, heads, n, m)` -> `(batch, kv_heads, heads / kv_heads * n, m)`: heads that share keys are stacked."""
    batch, heads, n, m = tensor.shape
    return tensor.reshape(batch, kv_heads, heads // kv_heads * n, m)


def _part(tensor: Tensor, rows: slice, columns: slice) -> Tensor:
    """Rows and columns of a tensor that broadcasts to `(batch, heads, all queries, keys)`."""
    tensor = tensor if tensor.shape[2] == 1 else tensor[:, :, rows]
    return tensor if tensor.shape[3] == 1 else tensor[..., columns]


def _solve(call: _Call, scores: Tensor, eps: float | Tensor) -> Tensor:
    """
    Origin and shift of the rows of a block, `(batch, heads, rows, 2)`: the maximum over all processes, or 0 in an empty
    row, and the shift relative to it.
    """
    processes = call.sharding.processes
    limits = torch.finfo(scores.dtype)
    accuracy, margin = 2 * limits.eps, 4 * limits.eps
    # The largest scores of a part hold all of its support, unless that is large.
    candidates = scores.topk(min(scores.shape[-1], _CANDIDATES), -1).values
    own = candidates[..., :1] if candidates.shape[-1] else scores.new_full((*scores.shape[:3], 1), -torch.inf)
    origin = own.masked_fill(own == -torch.inf, 0)
    rows = Rows(candidates - origin, eps)
    alone = find_shift(rows, torch.zeros_like(origin), steps=_MAX_STEPS, accuracy=limits.eps**0.5)
    maximum, bound = processes.largest(torch.cat([own, own + alone], -1)).split(1, -1)
    origin = maximum.masked_fill(maximum == -torch.inf, 0)
    # Rounding must not lift the bound above the shift, nor cut off entries of the support.
    low = torch.where(maximum == -torch.inf, 0, (bound - origin) * (1 - margin) - margin * origin.abs()).clamp_min(0)
    reach = 1 / eps if isinstance(eps, float) and eps else torch.inf if isinstance(eps, float) else eps.reciprocal()
    relative = candidates - origin
    survivors_are_left_out = (
        relative.shape[-1] < scores.shape[-1] and (relative[..., -1:] > low - reach * (1 + margin)).any()
    )
    if survivors_are_left_out:
        relative = scores - origin
    accuracy *= max(1.0, math.log(max(sum(call.sharding.keys), 1)))
    shift, moving = low, True
    for _ in range(_MAX_STEPS):
        p, w = powers(relative, shift, eps)
        own_sums = torch.stack([p.sum(-1), w.sum(-1)])
        # Whether to go on is part of the message: processes that disagree about it would wait for each other forever.
        message = processes.sum(torch.cat([own_sums.flatten(), own_sums.new_full((1,), float(moving))]))
        if not message[-1]:
            break
        total, slope = message[:-1].view(own_sums.shape)[..., None]
        # A slope of zero: the row is empty.
        new = torch.where(slope > 0, shift + newton_step(total, slope, eps), low)
        moving = bool(((new - shift).abs() > accuracy).any())
        shift = new
    return torch.cat([origin, shift], -1)


class _ShardedRead(torch.autograd.Function):
    """
    One evaluation of the normalizer and the read-out of `value`. `rows` holds what each query brings along: those of beta,
    alpha and sinks that are tensors, `(batch, heads, queries, n)`.
    """

    @staticmethod
    def forward(
        ctx: Any, call: _Call, query: Tensor, rows: Tensor, key: Tensor, value: Tensor, bias: Tensor | None
    ) -> Tensor:
        batch, heads, _, width = query.shape
        output = query.new_zeros(*query.shape[:3], value.shape[3], dtype=call.dtype)
        solution = query.new_zeros(*query.shape[:3], 2, dtype=call.dtype)
        processes = call.sharding.processes
        stored = _Stored.of(call, key, value)
        for block in call.sharding.blocks(batch * heads):
            count = block.own.stop - block.own.start
            q = processes.send(query[:, :, block.own], block.owner, query, (batch, heads, count, width)).to(call.dtype)
            settings = call.settings(_sent(call, rows, block))
            keys = call.visible_keys(block)
            scores = call.scores(block, keys, q, stored.key[:, :, keys], settings).scores
            solved = _solve(call, scores, settings.eps)
            origin, shift = solved.split(1, -1)
            p = weights(scores - origin, shift, settings.eps)[..., : keys.stop - keys.start]
            read = _per_group(p, value.shape[1]) @ stored.value[:, :, keys]
            read = processes.collect(read.reshape(batch, heads, count, value.shape[3]), block.owner)
            if block.owner == processes.rank:
                output[:, :, block.own], solution[:, :, block.own] = read, solved
        ctx.call = call
        ctx.save_for_backward(query, rows, key, value, solution)
        return output.to(value.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        with torch.autocast(grad.device.type, enabled=False):
            return _backward(ctx.call, grad, *ctx.saved_tensors)


class _Stored(NamedTuple):
    """Keys and values of this process, in the dtype of the computation."""

    key: Tensor
    value: Tensor

    @classmethod
    def of(cls, call: _Call, key: Tensor, value: Tensor) -> "_Stored":
        return cls(*(without_unseen(tensor.to(call.dtype), call.problem.mask) for tensor in (key, value)))


def _sent(call: _Call, rows: Tensor, block: Block) -> Tensor:
    """The numbers that the queries of a block bring along."""
    shape = (*rows.shape[:2], block.own.stop - block.own.start, rows.shape[3])
    if not rows.shape[3]:
        return rows.new_empty(shape)
    return call.sharding.processes.send(rows[:, :, block.own], block.owner, rows, shape)


def _backward(
    call: _Call, grad: Tensor, query: Tensor, rows: Tensor, key: Tensor, value: Tensor, solution: Tensor
) -> tuple[Tensor | None, ...]:
    """Gradients of the arguments of [`_ShardedRead`]."""
    processes, problem = call.sharding.processes, call.problem
    batch, heads, _, width = query.shape
    kv_heads = key.shape[1]
    stored = _Stored.of(call, key, value)
    grad_key, grad_value = torch.zeros_like(stored.key), torch.zeros_like(stored.value)
    grad_query, grad_rows = torch.zeros_like(query, dtype=call.dtype), torch.zeros_like(rows)
    grad_bias = None if problem.bias is None else torch.zeros_like(problem.bias, dtype=call.dtype)
    numbers = torch.cat([solution, rows], -1)
    for block in call.sharding.blocks(batch * heads):
        count = block.own.stop - block.own.start
        shape = (batch, heads, count)
        q = processes.send(query[:, :, block.own], block.owner, query, (*shape, width)).to(call.dtype)
        g_out = processes.send(grad[:, :, block.own], block.owner, grad, (*shape, grad.shape[3])).to(call.dtype)
        sent = _sent(call, numbers, block)
        origin, shift = sent[..., :2].split(1, -1)
        settings = call.settings(sent[..., 2:])
        eps = settings.eps
        keys = call.visible_keys(block)
        own = keys.stop - keys.start
        k, v = stored.key[:, :, keys], stored.value[:, :, keys]
        scores, plain, tanh = call.scores(block, keys, q, k, settings)
        p, w = powers(scores - origin, shift, eps)
        g = (_per_group(g_out, kv_heads) @ v.transpose(-1, -2)).reshape(*shape, own)
        if call.has_sink:
            g = torch.nn.functional.pad(g, (0, 1))  # its value is zero
        sums = torch.cat([w.sum(-1, keepdim=True), (w * g).sum(-1, keepdim=True)], -1)
        slope, weighted = processes.sum(sums).split(1, -1)
        mean = weighted / slope.masked_fill(slope == 0, 1)
        dz = w * (g - mean)
        of_rows = []  # this process's share of the gradients of the numbers in `rows`
        if isinstance(problem.beta, Tensor):
            of_rows.append((dz[..., :own] * plain).sum(-1, keepdim=True))
        if isinstance(problem.alpha, Tensor):
            direct = alpha_slope(p, eps)  # type: ignore[arg-type]  # a tensor, as alpha is
            of_rows.append((direct * (g - mean)).sum(-1, keepdim=True))
        if problem.sinks is not None:
            of_rows.append(dz[..., own:] if call.has_sink else torch.zeros_like(mean))
        dz, p = dz[..., :own], p[..., :own]
        if grad_bias is not None:
            part = _part(grad_bias, block.all, keys)
            part += dz.sum_to_size(part.shape)
        if tanh is not None:
            dz = dz * (1 - tanh.square())
        dz = dz * (settings.beta * problem.scaling)
        dq = (_per_group(dz, kv_heads) @ k).reshape(*shape, width)
        grad_key[:, :, keys] += _per_group(dz, kv_heads).transpose(-1, -2) @ _per_group(q, kv_heads)
        grad_value[:, :, keys] += _per_group(p, kv_heads).transpose(-1, -2) @ _per_group(g_out, kv_heads)
        whole = processes.collect(torch.cat([dq, *of_rows], -1), block.owner)
        if block.owner == processes.rank:
            grad_query[:, :, block.own], grad_rows[:, :, block.own] = whole.split([width, rows.shape[3]], -1)
    return (
        None,
        grad_query.to(query.dtype),
        grad_rows,
        grad_key.to(key.dtype),
        grad_value.to(value.dtype),
        None if grad_bias is None or problem.bias is None else grad_bias.to(problem.bias.dtype),
    )


def retrieve_sharded(problem: RetrievalProblem, processes: Processes, positions: Tensor | None) -> Tensor:
    """
    Compute a problem whose queries, keys and values are the shard of this process.

    Args:
        problem ([`RetrievalProblem`]): In canonical form, but mask and bias have all queries and the keys of this process.
        processes ([`Processes`]): The processes.
        positions (`torch.LongTensor` of shape `(queries,)`, *optional*):
            Position in the sequence of each query and key of this process. Without them, the shards follow each other.

    Returns:
        `torch.Tensor` of shape `(batch, heads, queries, value_dim)`: The output for the queries of this process.
    """
    with torch.autocast(problem.query.device.type, enabled=False):
        sharding = Sharding.of(processes, problem, positions)
        state, key, value = problem.query, problem.key, problem.value
        dtype = torch.promote_types(state.dtype, torch.float32)
        if problem.steps > 1:  # states between the steps are not rounded
            state, key, value = state.to(dtype), key.to(dtype), value.to(dtype)
        call = _Call(sharding, replace(problem, return_weights=False), dtype)
        shape = state.shape[:3]
        parts = [
            setting.to(dtype).expand(*shape, 1)
            for setting in (problem.beta, problem.alpha, _sink_rows(problem.sinks))
            if isinstance(setting, Tensor)
        ]
        rows = torch.cat(parts, -1) if parts else state.new_empty(*shape, 0, dtype=dtype)

        def read(state: Tensor, stored: Tensor) -> Tensor:
            return _ShardedRead.apply(call, state, rows, key, stored, problem.bias)

        state = last_state(problem, state, lambda state: read(state, key))
        return read(state, value).to(problem.value.dtype)


def _sink_rows(sinks: Tensor | None) -> Tensor | None:
    return None if sinks is None else sinks.view(1, -1, 1, 1)
