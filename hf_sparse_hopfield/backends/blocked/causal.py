# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The causal order and the sliding window within a block."""

import functools

import torch
from torch import Tensor

from .layout import Block, Layout


class CausalMask:
    """
    Hides the keys after a query, and those before its window.

    Args:
        layout ([`Layout`]): The sizes of the problem.
        window (`int`): Size of the sliding window; 0 means none.
        query, key (`torch.Tensor`): The tensors that the scores are computed from.
    """

    def __init__(self, layout: Layout, window: int, query: Tensor, key: Tensor) -> None:
        self.offset = layout.keys - layout.queries  # the last key that query 0 sees
        self.window = window
        self.query, self.key = query, key

    def hide(self, scores: Tensor, block: Block) -> None:
        """Write -inf to the corners of a block, `(..., queries, keys)`, that the diagonal and the window cut off."""
        device, queries = scores.device, block.queries
        last = torch.arange(queries.start, queries.stop, device=device)[:, None] + self.offset
        right = max(0, queries.start + self.offset + 1 - block.first)
        if right < scores.shape[-1]:
            keys = torch.arange(block.first + right, block.stop, device=device)
            self._fill(scores[..., right:], keys > last)
        if self.window:
            left = min(queries.stop + self.offset - self.window - block.first, scores.shape[-1])
            if left > 0:
                keys = torch.arange(block.first, block.first + left, device=device)
                self._fill(scores[..., :left], keys <= last - self.window)

    @functools.cached_property
    def _scores_are_finite(self) -> bool:
        return bool((self.query.sum() + self.key.sum()).isfinite())

    def _fill(self, scores: Tensor, hidden: Tensor) -> None:
        """Write -inf where `hidden`. A minimum is three times as fast as `masked_fill_`, but lets NaN through."""
        if self._scores_are_finite:
            limit = torch.full(hidden.shape, torch.inf, dtype=scores.dtype, device=scores.device)
            torch.minimum(scores, limit.masked_fill_(hidden, -torch.inf), out=scores)
        else:
            scores.masked_fill_(hidden, -torch.inf)
