# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The backward pass: sparse blocks from their supports alone, dense blocks computed again."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ...functional.normalizers import alpha_slope
from ..masks import without_unseen
from .dense_pieces import Piece, cut, pieces
from .dropout import Dropout
from .forward import Kept, full_precision
from .gradients import Gradients, Wanted
from .layout import Block, Layout
from .partition import partition
from .positions import bias_places
from .scores import Scores
from .settings import Settings
from .solver import powers
from .sparse_rows import products, weighted_sums


def backward_pass(
    grad: Tensor, kept: Kept, wanted: Wanted, query: Tensor, key: Tensor, value: Tensor, settings: Settings
) -> tuple[Tensor, ...]:
    """
    Gradients of query, key, value, beta, alpha, bias and sinks.

    Args:
        grad (`torch.Tensor` of shape `(batch, heads, queries, value_dim)`): Gradient of the output.
        kept ([`~forward.Kept`]): The tensors that the forward pass kept.
        wanted ([`Wanted`]): The gradients to compute.
        query, key, value, settings: As for [`~forward.forward_pass`].

    Returns:
        `tuple`: One tensor per gradient, empty if it is not wanted.
    """
    results = _backward_once(grad, kept, wanted, query, key, value, settings)
    mask = settings.mask  # as in the forward pass
    if mask is not None and not all(result.isfinite().all() for result in results):
        stored = without_unseen(key, mask), without_unseen(value, mask)
        results = _backward_once(grad, kept, wanted, query, *stored, settings)
    return results


@dataclass(frozen=True)
class _Pass:
    """
    The tensors and sums that the blocks of a backward pass share.

    Args:
        layout ([`Layout`]): The sizes of the problem.
        scores ([`Scores`]): The scores of the call.
        value (`torch.Tensor` of shape `(batch, kv_heads, keys, value_dim)`): The values.
        grad (grouped `torch.Tensor`): Gradient of the output.
        solution (grouped `torch.Tensor`): As in [`~forward.Kept`].
        dropout ([`Dropout`]): The dropout of the call.
        gradients ([`Gradients`]): The sums to add to.
    """

    layout: Layout
    scores: Scores
    value: Tensor
    grad: Tensor
    solution: Tensor
    dropout: Dropout
    gradients: Gradients


class _SparseBlock(NamedTuple):
    """A sparse block: its number, the sizes of the supports of its rows, and its entries in all supports."""

    number: int
    block: Block
    counts: Tensor
    entries: slice


def _backward_once(
    grad: Tensor, kept: Kept, wanted: Wanted, query: Tensor, key: Tensor, value: Tensor, settings: Settings
) -> tuple[Tensor, ...]:
    """[`backward_pass`] for stored patterns that are finite."""
    with full_precision(query.device.type):
        layout = Layout.of(query, key)
        scores = Scores(layout, query, key, settings)
        table = value.to(scores.dtype).contiguous()
        gradients = Gradients(scores, table, wanted)
        grad, solution = (layout.grouped(tensor.to(scores.dtype)) for tensor in (grad, kept.solution))
        shared = _Pass(layout, scores, table, grad, solution, Dropout.of(settings), gradients)
        _add_blocks(shared, kept, partition(layout, settings))
        inputs = (query, key, value, settings.beta, settings.alpha, settings.bias, settings.sinks)
        return tuple(
            query.new_empty(0) if total is None or tensor is None else total.reshape(tensor.shape).to(tensor.dtype)
            for total, tensor in zip(_totals(shared, wanted), inputs, strict=True)
        )


def _add_blocks(shared: _Pass, kept: Kept, blocks: list[Block]) -> None:
    """Add the gradients of all blocks, the dense ones first."""
    layout = shared.layout
    counts = layout.grouped(kept.counts)
    scratch = None
    sparse, start = [], 0
    for index, block in enumerate(blocks):
        sizes = layout.rows(counts, block).flatten()
        size = int(sizes.sum())
        if size >= 0:
            sparse.append(_SparseBlock(index, block, sizes, slice(start, start + size)))
            start += size
        else:
            if scratch is None:
                scratch = shared.value.new_empty(max(layout.score_count(block) for block in blocks))
            _add_dense_block(shared, index, block, scratch)
    if sparse:
        _add_sparse_blocks(shared, sparse, kept)


def _totals(shared: _Pass, wanted: Wanted) -> tuple[Tensor | None, ...]:
    """The sums over all blocks, in the order of `Wanted`."""
    sums, scores = shared.gradients, shared.scores
    beta = sums.beta
    if sums.query is not None and scores.row_settings.beta is not None and wanted.beta and not scores.softcap:
        # the scores depend on beta and on the query through their product alone
        beta = (sums.query * scores.query).sum(-1, keepdim=True) / scores.row_settings.beta
    return (
        sums.query if wanted.query else None,
        None if sums.key is None else sums.key.sum,
        None if sums.value is None else sums.value.sum,
        beta,
        sums.alpha,
        sums.bias,
        None if sums.sinks is None else sums.sinks.sum((0, 3, 4)).flatten(),
    )


def _slope(weight: Tensor, eps: float | Tensor) -> Tensor:
    """`w = p^(2 - alpha)`; zero outside the support."""
    inside = weight > 0
    if isinstance(eps, float) and eps == 1.0:
        return inside.to(weight.dtype)
    return torch.where(inside, weight.pow(1 - eps), 0)


def _add_dense_block(shared: _Pass, index: int, block: Block, scratch: Tensor) -> None:
    """Compute a dense block again and add its gradients."""
    layout, scores, sums = shared.layout, shared.scores, shared.gradients
    keys = layout.key_count(block)
    z = scores.of(block, scratch)[..., :keys]
    capped = scores.capped(block)[..., :keys] if scores.softcap else None
    eps, beta = scores.row_settings.eps_of(block), scores.row_settings.beta_of(block)
    query, key = layout.rows(scores.query, block), layout.stored(scores.key, block)
    grad, stored = layout.rows(shared.grad, block), layout.stored(shared.value, block)
    solution = layout.rows(shared.solution, block)
    grad_key = None if sums.key is None else layout.stored(sums.key.sum, block)
    grad_value = None if sums.value is None else layout.stored(sums.value.sum, block)
    grad_scores = None if sums.bias is None else torch.empty_like(z)
    row_sums = {"query": sums.query, "alpha": sums.alpha, "sinks": sums.sinks}
    if capped is not None:
        row_sums["beta"] = sums.beta
    results = {
        name: z.new_empty(*z.shape[:2], total.shape[-1]) for name, total in row_sums.items() if total is not None
    }
    for number, piece in enumerate(pieces(z.shape)):
        origin, shift, sink_weight = solution[piece].split(1, -1)
        head = piece[0]
        p, w = powers(z[piece].sub_(origin), shift, cut(eps, piece))
        g, read = torch.bmm(grad[piece], stored[head].transpose(1, 2)), p
        if shared.dropout.rate:
            kept = shared.dropout.factors(p, index, number + 1)
            g, read = g * kept, p * kept
        if grad_value is not None:
            grad_value[head].baddbmm_(read.transpose(1, 2), grad[piece])
        sink = None if scores.row_settings.sinks is None else sink_weight
        dz = _through_dense_rows(_DenseRows(p, w, g, cut(eps, piece), sink), piece, results)
        if grad_scores is not None:
            grad_scores[piece] = dz
        if capped is not None:
            if "beta" in results:
                results["beta"][piece] = (dz * capped[piece]).sum(-1, keepdim=True) * scores.softcap
            dz = dz * (1 - capped[piece].square())
        factor = cut(beta, piece) * scores.scaling
        if "query" in results:
            results["query"][piece] = torch.bmm(dz, key[head]) * factor
        if grad_key is not None:
            grad_key[head].baddbmm_(dz.transpose(1, 2), query[piece] * factor)
    for name, rows in results.items():
        total = row_sums[name]
        if total is not None:
            layout.store(total, block, rows)
    if sums.bias is not None and grad_scores is not None:
        part = layout.part(sums.bias, block)
        part += layout.grouped_scores(grad_scores, block).sum_to_size(part.shape)


class _DenseRows(NamedTuple):
    """Weights, their slopes and their gradients, `(kv heads, rows, keys)`; eps and the weights of the sinks."""

    p: Tensor
    w: Tensor
    g: Tensor
    eps: float | Tensor
    sink_weight: Tensor | None


def _through_dense_rows(rows: _DenseRows, piece: Piece, results: dict[str, Tensor]) -> Tensor:
    """The gradient of the scores; writes those of alpha and the sinks to `results` where they are wanted."""
    p, w, g, eps, sink_weight = rows
    sink_slope = None if sink_weight is None else _slope(sink_weight, eps)
    total = w.sum(-1, keepdim=True) if sink_slope is None else w.sum(-1, keepdim=True) + sink_slope
    weighted = w * g
    mean = weighted.sum(-1, keepdim=True) / total.masked_fill(total == 0, 1)
    if "alpha" in results and isinstance(eps, Tensor):
        direct = alpha_slope(p, eps)
        drift = direct.sum(-1, keepdim=True)
        drift = drift if sink_weight is None else drift + alpha_slope(sink_weight, eps)
        results["alpha"][piece] = (direct * g).sum(-1, keepdim=True) - mean * drift
    if "sinks" in results and sink_slope is not None:
        results["sinks"][piece] = -sink_slope * mean
    return weighted.addcmul_(w, mean, value=-1)


def _add_sparse_blocks(shared: _Pass, blocks: list[_SparseBlock], kept: Kept) -> None:
    """Add the gradients of all sparse blocks, from their supports alone."""
    scores, sums = shared.scores, shared.gradients
    entries = _entries_of(shared, blocks, kept)
    dz = _through_sparse_rows(shared, kept, entries.g)
    if sums.bias is not None:
        places = bias_places(shared.layout, sums.bias.shape, kept.rows, kept.columns)
        sums.bias.view(-1).index_add_(0, places, dz)
    if entries.capped is not None:
        if sums.beta is not None:
            total = sums.beta.new_zeros(sums.beta.numel()).index_add_(0, kept.rows, dz * entries.capped)
            sums.beta += (total * scores.softcap).view(sums.beta.shape)
        dz = dz * (1 - entries.capped.square())
    beta = scores.row_settings.beta_of_all()
    dz = dz * (scores.scaling * (beta if isinstance(beta, float) else beta.index_select(0, kept.rows)))
    if sums.query is not None:
        keys = scores.key.view(-1, scores.key.shape[-1])
        for _, block, counts, here in blocks:
            shared.layout.store(sums.query, block, weighted_sums(kept.columns[here], keys, counts, dz[here]))
    if sums.key is None and sums.value is None:
        return
    # The same entries, sorted by key
    order = torch.sort(kept.columns, stable=True).indices
    key_counts = torch.bincount(kept.columns, minlength=shared.value[..., 0].numel())
    rows = kept.rows.index_select(0, order)
    for gradient, terms, vectors in ((sums.key, dz, scores.query), (sums.value, entries.read, shared.grad)):
        if gradient is not None:
            vectors = vectors.reshape(-1, vectors.shape[-1])
            gradient.add(weighted_sums(rows, vectors, key_counts, terms.index_select(0, order)))


class _Entries(NamedTuple):
    """
    Quantities of the entries of all supports, `(n,)`: gradients of the weights, weights after dropout, and
    `tanh(score / softcap)` if there is a softcap.
    """

    g: Tensor
    read: Tensor
    capped: Tensor | None


def _entries_of(shared: _Pass, blocks: list[_SparseBlock], kept: Kept) -> _Entries:
    layout, scores, dropout = shared.layout, shared.scores, shared.dropout
    g, read = torch.empty_like(kept.weights), kept.weights
    if dropout.rate:
        read = torch.empty_like(kept.weights)
    capped = torch.empty_like(kept.weights) if scores.softcap else None
    values, keys = (table.view(-1, table.shape[-1]) for table in (shared.value, scores.key))
    for number, block, counts, here in blocks:
        columns = kept.columns[here]
        g[here] = products(columns, values, counts, layout.rows(shared.grad, block).flatten(0, 1))
        if dropout.rate:
            factors = dropout.factors(g[here], number)
            g[here] *= factors
            torch.mul(kept.weights[here], factors, out=read[here])
        if capped is not None:
            capped[here] = products(columns, keys, counts, scores.scaled_query(block).flatten(0, 1)).tanh_()
    return _Entries(g, read, capped)


def _through_sparse_rows(shared: _Pass, kept: Kept, g: Tensor) -> Tensor:
    """
    The gradient of the scores of all entries; adds those of alpha and the sinks where they are wanted.

    Rows of dense blocks have no entries, so nothing but zeros is added to them.
    """
    sums, settings = shared.gradients, shared.scores.row_settings
    count = shared.solution[..., 0].numel()

    def of_rows(tensor: Tensor) -> Tensor:
        return tensor.index_select(0, kept.rows)

    def row_sums(terms: Tensor) -> Tensor:
        return terms.new_zeros(count).index_add_(0, kept.rows, terms)

    eps = settings.eps_of_all()
    w = _slope(kept.weights, of_rows(eps) if isinstance(eps, Tensor) else eps)
    total, weighted = row_sums(w), row_sums(w * g)
    sink_weight = sink_slope = None
    if settings.sinks is not None:
        sink_weight = shared.solution[..., 2].reshape(-1)
        sink_slope = _slope(sink_weight, eps)
        total = total + sink_slope
    mean = weighted / total.masked_fill(total == 0, 1)
    if sums.alpha is not None and isinstance(eps, Tensor):
        direct = alpha_slope(kept.weights, of_rows(eps))
        drift = row_sums(direct)
        if sink_weight is not None:
            drift = drift + alpha_slope(sink_weight, eps)
        sums.alpha += (row_sums(direct * g) - mean * drift).view(sums.alpha.shape)
    if sums.sinks is not None and sink_slope is not None:
        sums.sinks -= (sink_slope * mean).view(sums.sinks.shape)
    return (g - of_rows(mean)).mul_(w)
