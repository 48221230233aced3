# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The gradients of a call, summed over its blocks."""

from typing import NamedTuple

import torch
from torch import Tensor

from .scores import Scores


class Wanted(NamedTuple):
    """Which gradients a backward pass has to compute."""

    query: bool
    key: bool
    value: bool
    beta: bool
    alpha: bool
    bias: bool
    sinks: bool


class Gradients:
    """
    Sums that the blocks add to; `None` for a gradient that nothing asks for.

    `query`, `beta`, `alpha` and `sinks` are grouped and have one entry per row.

    Args:
        scores ([`Scores`]): The scores of the call.
        value (`torch.Tensor` of shape `(batch, kv_heads, keys, value_dim)`): The values.
        wanted ([`Wanted`]): The gradients to compute.
    """

    def __init__(self, scores: Scores, value: Tensor, wanted: Wanted) -> None:
        rows, width = scores.layout.row_shape, scores.query.shape[-1]

        def zeros(needed: bool, *shape: int) -> Tensor | None:
            return value.new_zeros(shape) if needed else None

        # without a softcap, the gradient of beta follows from that of the query
        self.query = zeros(wanted.query or (wanted.beta and not scores.softcap), *rows, width)
        self.key = StoredGradient(scores.key) if wanted.key else None
        self.value = StoredGradient(value) if wanted.value else None
        self.beta = zeros(wanted.beta, *rows, 1)
        self.alpha = zeros(wanted.alpha, *rows, 1)
        self.bias = None if scores.bias is None else zeros(wanted.bias, *scores.bias.shape)
        self.sinks = zeros(wanted.sinks, *rows, 1)


class StoredGradient:
    """
    The gradient of keys or values. The sparse way computes it at once, so only dense blocks need zeros to add to.

    Args:
        stored (`torch.Tensor`): The keys or values.
    """

    def __init__(self, stored: Tensor) -> None:
        self.stored = stored
        self._sum: Tensor | None = None

    @property
    def sum(self) -> Tensor:
        """The sum, begun with zeros if need be."""
        if self._sum is None:
            self._sum = torch.zeros_like(self.stored)
        return self._sum

    def add(self, terms: Tensor) -> None:
        """Add terms that have as many entries as the stored patterns."""
        terms = terms.view(self.stored.shape)
        self._sum = terms if self._sum is None else self._sum.add_(terms)
