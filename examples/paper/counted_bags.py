# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Bags whose instances come from a few patterns, computed as multisets.

Equal instances have equal scores, so a bag of 300 instances of 15 kinds needs only 15 scores and their counts. With
counts c, the weight of one instance of kind i is p_i = [z_i - tau]_+ with sum of c_i p_i = 1 (sparsemax), or
exp(z_i) / sum of c_j exp(z_j) (softmax), and a retrieved pattern is the sum of c_i p_i v_i. Without dropout this is exact.
In training, the dropout is approximate in distribution: how many of c equal instances stay is one of 1024 equally likely
values (exact for c up to 10 at rate 1/2), and with `"hopfield"`, whose rows are averaged, the noise of the mean is normal
with the exact mean and variance.

Everything else (parameters, projections, classifier) is that of a [`stack`] of the library's models.
"""

import functools
import math

import torch
from stacking import StackedAssociation
from torch import nn

from hf_sparse_hopfield.models import SparseHopfieldForMultipleInstanceClassification as MultipleInstanceClassifier


# Dimension of the kinds in tensors of scores and weights. States and bags follow, bags last.
KINDS = 2


class _CountedSparsemax(torch.autograd.Function):
    """Works on one model after the other, so that the data stay in the cache. This is about ten times faster."""

    @staticmethod
    def forward(ctx, scores: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        shared = scores.shape[-1] == 1
        weights = scores.new_empty(*scores.shape[:-1], counts.shape[-1])
        for model in range(len(scores)):
            threshold = (_threshold_of_shared if shared else _threshold)(scores[model], counts[model])
            torch.sub(scores[model], threshold, out=weights[model]).clamp_(min=0.0).mul_(counts[model].clamp(max=1.0))
        ctx.shared = shared
        ctx.save_for_backward(weights, counts)
        return weights

    @staticmethod
    def backward(ctx, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        weights, counts = ctx.saved_tensors
        result = torch.empty_like(weights)
        for model in range(len(weights)):
            support, zero = weights[model] > 0, gradient.new_zeros(())
            inside = torch.where(support, counts[model], zero)
            kept = torch.where(support, gradient[model], zero)
            mean = kept.sum(KINDS - 1, keepdim=True) / inside.sum(KINDS - 1, keepdim=True)
            torch.addcmul(kept, inside, mean, value=-1.0, out=result[model])
        return result.sum(-1, keepdim=True) if ctx.shared else result, None


def _threshold(scores: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    # Michelot's algorithm: the threshold of a set that contains the support is never above the true one. Drop what lies
    # below it until nothing changes.
    kinds, zero = KINDS - 1, scores.new_zeros(())
    inside = counts.expand_as(scores)
    size = inside.sum(kinds, keepdim=True)
    for _ in range(scores.shape[kinds]):
        threshold = ((inside * scores).sum(kinds, keepdim=True) - 1.0) / size
        inside = torch.where(scores > threshold, inside, zero)
        smaller = inside.sum(kinds, keepdim=True)
        if torch.equal(smaller, size):
            break
        size = smaller
    return threshold


def _threshold_of_shared(scores: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """The threshold if all bags have the same scores, as before the first update: the kinds are sorted only once."""
    kinds = KINDS - 1
    scores, order = scores.sort(kinds, descending=True)
    counts = counts[0, :, 0]  # (kinds, bags)
    total = scores.new_full((1,), -1.0)
    size = scores.new_zeros(1)
    for score, kind in zip(scores.unbind(kinds), order.squeeze(-1).unbind(kinds), strict=True):
        # In the support if the sum of c_j (z_j - z) over the kinds above is below 1. A kind that is not in the bag adds 0.
        inside = torch.where(score * size > total, counts[kind], 0.0)
        total = total + inside * score
        size = size + inside
    return (total / size).unsqueeze(kinds)


def counted_entmax(scores: torch.Tensor, counts: torch.Tensor, alpha: float) -> torch.Tensor:
    """
    Compute the weight of one instance of each kind.

    Args:
        scores (`torch.Tensor` of shape `(models, heads, kinds, states, bags or 1)`): Scores of the kinds.
        counts (`torch.Tensor` of shape `(models, 1, kinds, 1, bags)`):
            Count of each kind in the bag; at least one is positive.
        alpha (`float`): 1 (softmax) or 2 (sparsemax).

    Returns:
        `torch.Tensor` of shape `(models, heads, kinds, states, bags)`.
    """
    if alpha == 1.0:
        return torch.softmax(scores + counts.log(), KINDS) / counts.clamp(min=1.0)
    if alpha == 2.0:
        return _CountedSparsemax.apply(scores, counts)
    raise ValueError(f"alpha must be 1.0 or 2.0 for counted bags, got {alpha!r}.")


def bag_logits(stacked: MultipleInstanceClassifier, kinds: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """
    Compute the logits of a stack of models for bags given as counts.

    Dropout acts on every instance, as in the model: of c equal ones a binomial number stays, drawn from a table of 1024 values.
    With `"hopfield"` it acts on the weights of every row, and the mean over the bag sums one column of them. This is a sum
    of (bag size) * c independent terms, for which a normal variable of the same mean and variance is drawn.

    Args:
        stacked: From [`stack`].
        kinds (`torch.Tensor` of shape `(kinds, input_size)`): The patterns.
        counts (`torch.Tensor` of shape `(models, bags, kinds)`): Count of each pattern in each bag.

    Returns:
        `torch.Tensor` of shape `(models, bags, num_labels)`.
    """
    config = stacked.config
    models, bags, _ = counts.shape
    embedded = stacked.embedding(kinds.expand(models, *kinds.shape).contiguous())
    counts = counts.transpose(1, 2).contiguous()[:, None, :, None]  # (models, 1, kinds, 1, bags)
    if config.aggregation in ("attention", "gated_attention"):
        weights = counted_entmax(stacked.aggregation.scores(embedded)[..., None, None], counts, config.alpha)
        bag = _read_out(_dropped(weights, counts, stacked), embedded[:, None]).flatten(1)
    else:
        pooling = config.aggregation == "pooling"
        hopfield = stacked.aggregation.hopfield if pooling else stacked.aggregation
        core: StackedAssociation = hopfield.association_core
        patterns = [stacked.aggregation.pooling_weights.flatten(0, 1) if pooling else embedded, embedded, embedded]
        if config.normalize:
            norms = (hopfield.norm_state_pattern, hopfield.norm_stored_pattern, hopfield.norm_pattern_projection)
            patterns = [norm(pattern) for norm, pattern in zip(norms, patterns, strict=True)]
        query, key, value = core.project(*patterns)
        factor = core.scaling * config.beta
        scores = (factor * key @ query.transpose(-1, -2))[..., None]
        # After the first update a state is a weighted sum of keys, so its scores are sums of these.
        gram = factor * key @ key.transpose(-1, -2)
        for _ in range(config.update_steps):
            weights = counts * counted_entmax(scores, counts, config.alpha)
            scores = (gram @ weights.flatten(3)).view(weights.shape)
        weights = counted_entmax(scores, counts, config.alpha)
        weights = _dropped(weights, counts, stacked) if pooling else _mean_of_rows(weights, counts, stacked)
        bag = core.out_proj(_read_out(weights, value)).flatten(1)
    if stacked.activation is not None:
        bag = stacked.activation(bag)
    return stacked.classifier(bag).view(models, bags, -1)


def _read_out(weights: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """
    Read out with the heads side by side: `(models * bags, states, heads * width)`.

    Args:
        weights (`torch.Tensor` of shape `(models, heads, kinds, states, bags)`): Total weights of the kinds.
        values (`torch.Tensor` of shape `(models, heads or 1, kinds, width)`): Values of the kinds.
    """
    retrieved = weights.flatten(3).transpose(-1, -2) @ values
    return retrieved.unflatten(2, weights.shape[3:]).permute(0, 3, 2, 1, 4).flatten(3).flatten(0, 1)


def _dropped(weights: torch.Tensor, counts: torch.Tensor, stacked: nn.Module) -> torch.Tensor:
    """Total weights of the kinds, with dropout of single instances."""
    rate = stacked.config.bag_dropout
    if not stacked.training or not rate:
        return weights * counts
    table = _binomial_table(int(counts.max()), 1.0 - rate) / (1.0 - rate)
    # One random number of 63 bits gives four of at least 15 bits, of which 10 are used.
    draws = torch.empty((weights.numel() + 3) // 4, dtype=torch.int64).random_().view(torch.int16)[: weights.numel()]
    places = draws.view(weights.shape).bitwise_and(table.shape[1] - 1) + (counts * table.shape[1]).to(torch.int32)
    return weights * table.view(-1).index_select(0, places.view(-1)).view(weights.shape)


@functools.cache
def _binomial_table(largest: int, rate: float, points: int = 1024) -> torch.Tensor:
    """
    Tabulate equally likely values of a binomial variable for each number of trials up to `largest`, as
    `(largest + 1, points)`. At rate 1/2 they are exact up to 10 trials. Drawing from the table is several times faster than
    `torch.binomial`.
    """
    trials = torch.arange(largest + 1, dtype=torch.float64)[:, None]
    successes = torch.arange(largest + 1, dtype=torch.float64)
    ways = torch.lgamma(trials + 1) - torch.lgamma(successes + 1) - torch.lgamma((trials - successes).clamp(min=0) + 1)
    chance = (ways + successes * math.log(rate) + (trials - successes) * math.log1p(-rate)).exp()
    chance = chance.masked_fill(successes > trials, 0.0)
    middle = (torch.arange(points, dtype=torch.float64) + 0.5) / points
    return torch.searchsorted(chance.cumsum(1), middle.expand(largest + 1, -1).contiguous()).float()


def _mean_of_rows(weights: torch.Tensor, counts: torch.Tensor, stacked: nn.Module) -> torch.Tensor:
    """Mean of the total weights of the kinds over all states, that is, over the kinds weighted by their counts."""
    share = (counts / counts.sum(KINDS, keepdim=True)).transpose(2, 3)
    column = (weights * share).sum(3, keepdim=True) * counts
    rate = stacked.config.bag_dropout
    if not stacked.training or not rate:
        return column
    size = counts.sum(KINDS, keepdim=True)
    variance = (weights.square() * share).sum(3, keepdim=True) * counts / size * (rate / (1.0 - rate))
    return column + (variance + 1e-12).sqrt() * torch.randn_like(column)
