# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Retrieval in pure PyTorch on any device, without a tensor of size queries x keys.

A block of queries sees all of its keys at once, in scores that fit a cache. What follows depends on the block:

- Few survivors. The threshold of any part of a row is a lower bound of the row's own. The maxima of strided groups of
  keys give a bound that is nearly exact, so that one pass over the scores leaves a handful of candidates a row. They are
  solved exactly and kept as indices and weights (compressed rows). The read-out and the whole of the backward pass touch
  only them, and nothing is computed a second time.
- Many. The block is normalised and multiplied as matrices, and computed again in the backward pass, as dense attention
  does.

The two passes are custom operators, so that torch.compile and torch.export see one node each.
"""

import contextlib
from collections.abc import Sequence

import torch
from torch import Tensor

from ...functional.normalizers import alpha_slope
from ..backend import Backend
from ..dispatch import can_bypass_dispatcher
from ..masks import without_unseen
from ..multistep import last_state
from ..operators import register_operator
from ..problem import RetrievalProblem, RetrievalResult
from .blocks import Block, Scores, find_shift, origin_of, powers, solve_sparse
from .decode import is_few, read_few
from .sparse_rows import products, weighted_sums


# Entries of a piece of a dense block: several temporaries of this size share the cache.
_DENSE_ENTRIES = 1 << 18
# Dense rows of at least this many keys start from the solution of every eighth of them.
_SAMPLED_KEYS = 512
_SAMPLE = 8


def _kept(like: Tensor, rate: float, seed: int, number: int) -> Tensor:
    """What dropout multiplies the weights of piece `number` with: the same in both passes."""
    if rate == 1:
        return torch.zeros_like(like)
    generator = torch.Generator(like.device).manual_seed((seed * 1000003 + number) % (1 << 62))
    keep = torch.rand(like.shape, generator=generator, device=like.device) >= rate
    return keep.to(like.dtype) / (1 - rate)


def _plain_precision(device: str) -> contextlib.AbstractContextManager:
    """Autocast would round scores inside of the operators as well."""
    if torch.is_autocast_enabled(device):
        return torch.autocast(device, enabled=False)
    return contextlib.nullcontext()


def _pieces(shape: torch.Size) -> list[tuple[slice, slice]]:
    """Slices of heads and rows of a dense block, each about as large as a cache."""
    heads, rows, keys = shape
    if heads * rows * keys <= 2 * _DENSE_ENTRIES:
        return [(slice(0, heads), slice(0, rows))]
    step = max(1, min(rows, _DENSE_ENTRIES // keys))
    together = max(1, _DENSE_ENTRIES // (rows * keys))  # short rows: many heads at once
    return [
        (slice(h, min(h + together, heads)), slice(r, min(r + step, rows)))
        for h in range(0, heads, together)
        for r in range(0, rows, step)
    ]


def _cut(setting: float | Tensor | None, piece: tuple[slice, slice]) -> float | Tensor | None:
    return setting[piece] if isinstance(setting, Tensor) else setting


def _forward_once(
    query: Tensor, key: Tensor, value: Tensor, settings: Sequence, keep: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """
    One step of retrieval.

    Args:
        query, key, value (`torch.Tensor`): As in `RetrievalProblem`.
        settings (`Sequence`): The arguments of the operators from `scaling` on.
        keep (`bool`): Whether there may be a backward pass.

    Returns:
        Output, and what the backward pass needs if `keep`: row numbers, positions in the table of all keys, and weights
        of the supports, block by block; for every query the size of its support (-1: dense); for every query origin,
        shift and weight of the sink.
    """
    *of_scores, dropout, seed = settings
    with _plain_precision(query.device.type):
        scores = Scores(query, key, *of_scores)
        value_table = value.to(scores.dtype).contiguous()
        shape = (scores.batch, scores.heads, scores.groups, scores.queries)
        output = value_table.new_zeros(*shape, value.shape[3])
        counts = torch.zeros(*shape, 1, dtype=torch.int32, device=query.device)
        solution = value_table.new_zeros(*shape, 3 if keep else 0)
        number = 0 if seed is None else int(seed)
        blocks = scores.blocks()
        scratch = value_table.new_empty(max((scores.entries(block) for block in blocks), default=0))
        empty = torch.empty(0, dtype=torch.int32, device=query.device)
        supports = [(empty, empty.clone(), value_table.new_empty(0))]
        for index, block in enumerate(blocks):
            z, eps, sink = scores.of(block, scratch), scores.eps(block), scores.sink(block)
            support = None
            if scores.dense_only:
                origin = z.amax(-1, keepdim=True)
                origin = origin_of(origin if sink is None else torch.maximum(origin, sink))
                t = torch.zeros_like(origin)
            else:
                flat = [x.reshape(-1, x.shape[-1]) if isinstance(x, Tensor) else x for x in (z, eps, sink)]
                maximum, origin, t, support = solve_sparse(*flat, scores.may_be_empty)
            if support is None:
                low = (x.view(*z.shape[:2], 1) for x in (origin, t))
                result, found = _dense_forward(scores, block, z, eps, sink, *low, value_table, dropout, number, index)
                if keep:
                    scores.store(counts, block, torch.full_like(origin, -1, dtype=torch.int32))
                    scores.store(solution, block, found)
            else:
                row, column, weight, count, sink_weight = support
                column = scores.table_places(block, row, column)
                kept = weight * _kept(weight, dropout, number, index << 20) if dropout else weight
                result = weighted_sums(column, value_table.view(-1, value.shape[3]), count, kept)
                if keep:
                    scores.store(counts, block, count)
                    if sink_weight is not None:
                        scores.store(solution[..., 2:], block, sink_weight)
                    row = scores.rows(scores.numbers, block).flatten().index_select(0, row).int()
                    supports.append((row, column, weight))
                if not maximum.max() < torch.inf:  # NaN or +inf: the row has no solution, and says so
                    result = result.masked_fill(~(maximum < torch.inf), torch.nan)
            scores.store(output, block, result)
        rows, columns, weights = (torch.cat(parts) if keep else parts[0] for parts in zip(*supports, strict=True))
        solution, counts = solution.flatten(1, 2), counts.flatten(1, 2)
        return output.flatten(1, 2).to(value.dtype), rows, columns, weights, counts, solution


def _forward_blocks(query: Tensor, key: Tensor, value: Tensor, *rest) -> tuple[Tensor, ...]:
    *settings, keep = rest
    result = _forward_once(query, key, value, settings, keep)
    mask = settings[_MASK]
    if mask is not None and not result[0].isfinite().all():  # by what nobody may attend to, perhaps
        result = _forward_once(query, without_unseen(key, mask), without_unseen(value, mask), settings, keep)
    return result


def _dense_forward(
    scores: Scores,
    block: Block,
    z: Tensor,
    eps: float | Tensor,
    sink: Tensor | None,
    origin: Tensor,
    t: Tensor,
    value: Tensor,
    dropout: float,
    seed: int,
    index: int,
) -> tuple[Tensor, Tensor]:
    """Output of a dense block, and origin, shift and weight of the sink of its rows."""
    z = z[..., : min(block.stop, scores.keys) - block.first]
    stored = scores.stored(value, block)
    result = z.new_empty(*z.shape[:2], value.shape[-1])
    solution = z.new_zeros(*z.shape[:2], 3)
    sink, guess = None if sink is None else sink - origin, None
    if z.shape[2] >= _SAMPLED_KEYS:
        # The shift of a sample is close to that of the row: it saves half of the steps that see everything.
        sample = z[..., ::_SAMPLE] - origin
        guess = find_shift(sample, t, eps, sink, 8, 1e-5, share=sample.shape[2] / z.shape[2])
    # A step that is small enough leaves an error of the order of its square.
    accuracy = torch.finfo(z.dtype).eps ** 0.75
    for number, piece in enumerate(_pieces(z.shape)):
        relative, low, member = z[piece].sub_(origin[piece]), t[piece], _cut(eps, piece)
        last, start = _cut(sink, piece), _cut(guess, piece)
        shift = find_shift(relative, low, member, last, 100, accuracy, start=start)
        p = powers(relative, shift, member, slopes=False)[0]
        if dropout:
            p = p * _kept(p, dropout, seed, (index << 20) + number + 1)
        result[piece] = torch.bmm(p, stored[piece[0]])
        solution[piece] = torch.cat(
            [origin[piece], shift, torch.zeros_like(shift) if last is None else powers(last, shift, member)[0]], -1
        )
    return result, solution


def _forward_fake(query: Tensor, key: Tensor, value: Tensor, *rest) -> tuple[Tensor, ...]:
    keep = rest[-1]
    size = torch.library.get_ctx().new_dynamic_size() if keep else 0
    compute = torch.promote_types(query.dtype, torch.float32)
    batch, heads, queries, _ = query.shape
    return (
        value.new_empty(batch, heads, queries, value.shape[3]),
        query.new_empty(size, dtype=torch.int32),
        query.new_empty(size, dtype=torch.int32),
        query.new_empty(size, dtype=compute),
        query.new_empty(batch, heads, queries, 1, dtype=torch.int32),
        query.new_empty(batch, heads, queries, 3 if keep else 0, dtype=compute),
    )


class _Gradients:
    """Sums that both ways of a block add to; `None` where no gradient is asked for."""

    def __init__(self, scores: Scores, value: Tensor, bias: Tensor | None, needs: list[bool]):
        rows = (scores.batch, scores.heads, scores.groups, scores.queries)

        def zeros(needed: bool, *shape: int) -> Tensor | None:
            return torch.zeros(shape, dtype=scores.dtype, device=scores.device) if needed else None

        query, key, self_value, beta, alpha, self_bias, sinks = needs
        # without a softcap, the gradient of beta comes from that of the query
        self.query = zeros(query or (beta and not scores.softcap), *rows, scores.width)
        # The sparse way makes these two at once: only dense blocks need zeros to add to.
        self.stored = {"key": None, "value": None}
        self.wanted = {"key": scores.key.shape if key else None, "value": value.shape if self_value else None}
        self.beta = zeros(beta, *rows, 1)
        self.alpha = zeros(alpha, *rows, 1)
        self.bias = zeros(self_bias, *(() if bias is None else bias.shape))
        self.sinks = zeros(sinks, *rows, 1)

    def of_stored(self, name: str, like: Tensor) -> Tensor | None:
        """The sum for `"key"` or `"value"`, begun with zeros if need be."""
        if self.wanted[name] is not None and self.stored[name] is None:
            self.stored[name] = like.new_zeros(self.wanted[name])
        return self.stored[name]

    def add_stored(self, name: str, terms: Tensor) -> None:
        """Add to the sum for `"key"` or `"value"`."""
        terms = terms.view(self.wanted[name])
        self.stored[name] = terms if self.stored[name] is None else self.stored[name].add_(terms)


def _slope(weight: Tensor, eps: float | Tensor) -> Tensor:
    """`w = p^(2 - alpha)`; zero outside the support."""
    inside = weight > 0
    if isinstance(eps, float) and eps == 1.0:
        return inside.to(weight.dtype)
    return torch.where(inside, weight.pow(1 - eps), 0)


def _dense_backward(
    scores: Scores,
    block: Block,
    scratch: Tensor,
    solution: Tensor,
    grad: Tensor,
    value: Tensor,
    sums: _Gradients,
    dropout: float,
    seed: int,
    index: int,
) -> None:
    """Compute a dense block again and add its gradients to `sums`."""
    keys = min(block.stop, scores.keys) - block.first
    z = scores.of(block, scratch)[..., :keys]
    capped = scores.capped(block)[..., :keys] if scores.softcap else None
    eps, query, outer = scores.eps(block), scores.rows(scores.query, block), scores.outer_factor(block)
    key, stored = scores.stored(scores.key, block), scores.stored(value, block)
    solution, grad = scores.rows(solution, block), scores.rows(grad, block)
    grad_key, grad_value = (
        None if x is None else scores.stored(x, block).view(-1, keys, x.shape[-1])
        for x in (sums.of_stored("key", value), sums.of_stored("value", value))
    )
    grad_scores = None if sums.bias is None else z.new_empty(z.shape)
    parts = {"query": [], "beta": [], "alpha": [], "sinks": []}
    for number, piece in enumerate(_pieces(z.shape)):
        origin, t, sink_weight = solution[piece].split(1, -1)
        member, head = _cut(eps, piece), piece[0]
        p, w = powers(z[piece].sub_(origin), t, member)
        g, read = torch.bmm(grad[piece], stored[head].transpose(1, 2)), p
        if dropout:
            kept = _kept(p, dropout, seed, (index << 20) + number + 1)
            g, read = g * kept, p * kept
        if grad_value is not None:
            grad_value[head].baddbmm_(read.transpose(1, 2), grad[piece])
        sink_slope = None if scores.sinks is None else _slope(sink_weight, member)
        total = w.sum(-1, keepdim=True) if sink_slope is None else w.sum(-1, keepdim=True) + sink_slope
        weighted = w * g
        mean = weighted.sum(-1, keepdim=True) / total.masked_fill(total == 0, 1)
        if sums.alpha is not None:
            direct = alpha_slope(p, member)
            drift = direct.sum(-1, keepdim=True)
            drift = drift if sink_slope is None else drift + alpha_slope(sink_weight, member)
            parts["alpha"].append((direct * g).sum(-1, keepdim=True) - mean * drift)
        if sums.sinks is not None:
            parts["sinks"].append(-sink_slope * mean)
        dz = weighted.addcmul_(w, mean, value=-1)
        if grad_scores is not None:
            grad_scores[piece] = dz
        if capped is not None:
            if sums.beta is not None:
                parts["beta"].append((dz * capped[piece]).sum(-1, keepdim=True) * scores.softcap)
            dz = dz * (1 - capped[piece].square())
        factor = _cut(outer, piece) * scores.scaling
        if sums.query is not None:
            parts["query"].append(torch.bmm(dz, key[head]) * factor)
        if grad_key is not None:
            grad_key[head].baddbmm_(dz.transpose(1, 2), query[piece] * factor)
    for name, pieces in parts.items():
        if pieces:
            scores.store(getattr(sums, name), block, torch.cat([x.flatten(0, 1) for x in pieces]))
    if grad_scores is not None:
        part = scores.part(sums.bias, block)
        part += scores.apart(grad_scores, block).sum_to_size(part.shape)


def _sparse_backward(
    scores: Scores,
    blocks: list[tuple[int, Block, Tensor, int]],
    support: tuple[Tensor, Tensor, Tensor],
    solution: Tensor,
    grad: Tensor,
    value: Tensor,
    sums: _Gradients,
    dropout: float,
    seed: int,
) -> None:
    """
    Gradients of all sparse blocks, from their supports alone.

    Args:
        blocks (`list`): Number, block, sizes of the supports of its rows, and their sum.
    """
    rows, columns, weights = support
    read, g = weights, torch.empty_like(weights)
    if dropout:
        read = torch.empty_like(weights)
    tables = value.view(-1, value.shape[-1]), scores.key.view(-1, scores.width)
    capped = torch.empty_like(weights) if scores.softcap else None
    start = 0
    for index, block, counts, size in blocks:
        here = slice(start, start + size)
        start += size
        g[here] = products(columns[here], tables[0], counts, scores.rows(grad, block).flatten(0, 1))
        if dropout:
            kept = _kept(g[here], dropout, seed, index << 20)
            g[here] *= kept
            torch.mul(weights[here], kept, out=read[here])
        if capped is not None:
            capped[here] = products(columns[here], tables[1], counts, scores.scaled_query(block).flatten(0, 1)).tanh_()

    def of_rows(tensor: Tensor) -> Tensor:
        return tensor.reshape(-1).index_select(0, rows)

    def row_sums(terms: Tensor) -> Tensor:
        return terms.new_zeros(scores.numbers.numel()).index_add_(0, rows, terms)

    eps = scores.alpha_value - 1 if scores.alpha is None else scores.every_row(scores.alpha) - 1
    w = _slope(weights, eps if isinstance(eps, float) else of_rows(eps))
    total, weighted = row_sums(w), row_sums(w * g)
    sink_weight = sink_slope = None
    if scores.sinks is not None:
        sink_weight = solution[..., 2].reshape(-1)
        sink_slope = _slope(sink_weight, eps if isinstance(eps, float) else eps.reshape(-1))
        total = total + sink_slope
    mean = weighted / total.masked_fill(total == 0, 1)
    dz = (g - of_rows(mean)).mul_(w)
    # Rows of dense blocks have no entries here: what is added to them is zero.
    if sums.alpha is not None:
        direct = alpha_slope(weights, of_rows(eps))
        drift = row_sums(direct)
        if sink_weight is not None:
            drift = drift + alpha_slope(sink_weight, eps.reshape(-1))
        sums.alpha += (row_sums(direct * g) - mean * drift).view(sums.alpha.shape)
    if sums.sinks is not None:
        sums.sinks -= (sink_slope * mean).view(sums.sinks.shape)
    if sums.bias is not None:
        sums.bias.view(-1).index_add_(0, scores.bias_places(rows, columns), dz)
    if capped is not None:
        if sums.beta is not None:
            sums.beta += (row_sums(dz * capped) * scores.softcap).view(sums.beta.shape)
        dz = dz * (1 - capped.square())
    dz = dz * (scores.scaling * (scores.factor if scores.beta is None else of_rows(scores.every_row(scores.beta))))
    start = 0
    for _, block, counts, size in blocks if sums.query is not None else ():
        scores.store(
            sums.query,
            block,
            weighted_sums(columns[start : start + size], tables[1], counts, dz[start : start + size]),
        )
        start += size
    if not any(sums.wanted.values()):
        return
    order = torch.sort(columns, stable=True).indices
    counts = torch.bincount(columns, minlength=tables[0].shape[0])
    rows = rows.index_select(0, order)
    for name, terms, vectors in (("key", dz, scores.query), ("value", read, grad)):
        if sums.wanted[name]:
            vectors = vectors.reshape(-1, vectors.shape[-1])
            sums.add_stored(name, weighted_sums(rows, vectors, counts, terms.index_select(0, order)))


def _backward_once(
    grad: Tensor,
    support: tuple[Tensor, Tensor, Tensor],
    counts: Tensor,
    solution: Tensor,
    needs: list[bool],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    settings: Sequence,
) -> tuple[Tensor, ...]:
    """Gradients of query, key, value, beta, alpha, bias and sinks; empty where `needs` does not ask for one."""
    *of_scores, dropout, seed = settings
    _, _, beta, alpha, _, _, bias, sinks, *_, softcap = of_scores
    with _plain_precision(query.device.type):
        scores = Scores(query, key, *of_scores)
        value_table = value.to(scores.dtype).contiguous()
        grad, solution, counts = scores.grouped(grad), scores.grouped(solution), scores.grouped(counts, torch.int32)
        sums = _Gradients(scores, value, scores.bias, needs)
        number = 0 if seed is None else int(seed)
        blocks = scores.blocks()
        scratch = None
        sparse = []
        for index, block in enumerate(blocks):
            sizes = scores.rows(counts, block).flatten()
            size = int(sizes.sum())
            if size >= 0:
                sparse.append((index, block, sizes, size))
            else:
                if scratch is None:
                    scratch = value_table.new_empty(max(scores.entries(block) for block in blocks))
                _dense_backward(scores, block, scratch, solution, grad, value_table, sums, dropout, number, index)
        if sparse:
            _sparse_backward(scores, sparse, support, solution, grad, value_table, sums, dropout, number)
        if sums.beta is not None and not softcap:
            sums.beta = (sums.query * scores.query).sum(-1, keepdim=True) / scores.beta
        if sums.sinks is not None:
            sums.sinks = sums.sinks.sum((0, 3, 4)).flatten()
        inputs = (query, key, value, beta, alpha, bias, sinks)
        stored = (sums.of_stored(name, value_table) for name in ("key", "value"))
        sums = (sums.query, *stored, sums.beta, sums.alpha, sums.bias, sums.sinks)
        return tuple(
            total.reshape(tensor.shape).to(tensor.dtype) if needed else query.new_empty(0)
            for total, tensor, needed in zip(sums, inputs, needs, strict=True)
        )


def _backward_blocks(grad: Tensor, *rest) -> tuple[Tensor, ...]:
    rows, columns, weights, counts, solution, needs, query, key, value, *settings = rest
    kept = ((rows, columns, weights), counts, solution, needs)
    results = _backward_once(grad, *kept, query, key, value, settings)
    mask = settings[_MASK]  # as in the forward pass
    if mask is not None and not all(result.isfinite().all() for result in results):
        results = _backward_once(grad, *kept, query, without_unseen(key, mask), without_unseen(value, mask), settings)
    return results


def _backward_fake(grad: Tensor, *rest) -> tuple[Tensor, ...]:
    _, _, _, _, _, needs, query, key, value, *settings = rest
    inputs = (query, key, value, *(settings[place] for place in _DIFFERENTIABLE))
    return tuple(
        tensor.new_empty(tensor.shape) if needed else query.new_empty(0)
        for tensor, needed in zip(inputs, needs, strict=True)
    )


def _save(ctx, inputs: tuple, output: tuple) -> None:
    query, key, value, *settings, keep = inputs
    tensors = [setting if isinstance(setting, Tensor) else None for setting in settings]
    ctx.save_for_backward(*output[1:], query, key, value, *tensors)
    ctx.settings = [None if isinstance(setting, Tensor) else setting for setting in settings]
    ctx.keep = keep
    ctx.set_materialize_grads(False)


def _differentiate(ctx, grad: Tensor | None, *unused) -> tuple:
    grads: list[Tensor | None] = [None] * len(ctx.needs_input_grad)
    if grad is None:
        return tuple(grads)
    rows, columns, weights, counts, solution, query, key, value, *tensors = ctx.saved_tensors
    settings = [b if a is None else a for a, b in zip(tensors, ctx.settings, strict=True)]
    kept = (rows, columns, weights, counts, solution)
    if not ctx.keep:  # recorded where no gradient was foreseen, such as by torch.export under no_grad
        kept = _operators.blocked_forward(query, key, value, *settings, True)[1:]
    places = (0, 1, 2, *(3 + place for place in _DIFFERENTIABLE))
    needs = [ctx.needs_input_grad[place] for place in places]
    results = _operators.blocked_backward(grad, *kept, needs, query, key, value, *settings)
    for place, needed, result in zip(places, needs, results, strict=True):
        grads[place] = result if needed else None
    return tuple(grads)


_ARGUMENTS = (
    "Tensor query, Tensor key, Tensor value, float scaling, float factor, Tensor? beta, Tensor? alpha, float alpha_value, "
    "Tensor? mask, Tensor? bias, Tensor? sinks, bool is_causal, int window, float softcap, float dropout, Tensor? seed"
)
# Places among these, from `scaling` on: of beta, alpha, bias and sinks, and of the mask.
_DIFFERENTIABLE, _MASK = (2, 3, 6, 7), 5
_LIBRARY = torch.library.Library("hf_sparse_hopfield", "FRAGMENT")
_LIBRARY.define(f"blocked_forward({_ARGUMENTS}, bool keep) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)")
_LIBRARY.define(
    "blocked_backward(Tensor grad, Tensor rows, Tensor columns, Tensor weights, Tensor counts, Tensor solution, "
    f"bool[] needs, {_ARGUMENTS}) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)
register_operator(_LIBRARY, "blocked_forward", _forward_blocks, _forward_fake, _differentiate, _save)
register_operator(_LIBRARY, "blocked_backward", _backward_blocks, _backward_fake)
_operators = torch.ops.hf_sparse_hopfield


def _step(problem: RetrievalProblem, state: Tensor, key: Tensor, value: Tensor, dropout: float) -> Tensor:
    """One evaluation of the normaliser and read-out of `value`."""
    inputs = (state, key, value, problem.beta, problem.alpha, problem.bias, problem.sinks)
    direct = can_bypass_dispatcher(*inputs, problem.mask)
    if direct and not dropout and is_few(problem):
        output = read_few(problem, state, key, value)
        if output is not None:
            return output
    rows = (*state.shape[:3], 1)

    def per_row(setting: float | Tensor) -> Tensor | None:
        return setting.expand(rows) if isinstance(setting, Tensor) else None

    plain_beta = 1.0 if isinstance(problem.beta, Tensor) else problem.beta
    plain_alpha = 0.0 if isinstance(problem.alpha, Tensor) else problem.alpha
    # Drawn outside of the operator: it follows torch's generator, also when a checkpoint is computed again.
    seed = torch.randint(1 << 40, (), device=state.device) if dropout else None
    keep = not direct and torch.is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in inputs)
    forward = _forward_blocks if direct else _operators.blocked_forward
    return forward(
        state,
        key,
        value,
        problem.scaling,
        plain_beta,
        per_row(problem.beta),
        per_row(problem.alpha),
        plain_alpha,
        problem.mask,
        problem.bias,
        problem.sinks,
        problem.is_causal,
        problem.sliding_window or 0,
        problem.softcap or 0.0,
        dropout,
        seed,
        keep,
    )[0]


def run(problem: RetrievalProblem) -> RetrievalResult:
    """Compute `problem` block by block; see `RetrievalProblem` for what each field means."""
    state, key, value = problem.query, problem.key, problem.value
    if problem.steps > 1:
        compute = torch.promote_types(state.dtype, torch.float32)  # states between the steps are not rounded
        state, key, value = state.to(compute), key.to(compute), value.to(compute)
    state = last_state(problem, state, lambda state: _step(problem, state, key, key, 0.0))
    return RetrievalResult(_step(problem, state, key, value, problem.dropout).to(problem.value.dtype))


def refusal(problem: RetrievalProblem) -> str | None:
    """Why this backend cannot serve `problem`; `None` if it can."""
    if problem.return_weights or problem.return_trace:
        return "it keeps no weights, states or energies"
    if 0 in (problem.query.shape[3], problem.value.shape[3]):
        return "there is nothing to multiply"
    batch, heads, queries, _ = problem.query.shape
    if max(batch * heads * queries, batch * heads * problem.key.shape[2]) > 2**31 - 1:
        return "its indices have 32 bits, too few for so many queries or keys"
    return None


BACKEND = Backend(name="blocked", run=run, refusal=refusal, priority=100)
