# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The scores of a block: products of queries and keys with scaling, softcap, beta, bias and masks."""

import torch
import torch.nn.functional as F
from torch import Tensor

from .causal import CausalMask
from .layout import Block, Layout
from .partition import key_unit
from .row_settings import RowSettings
from .settings import Settings


class Scores:
    """
    Computes scores block by block, in float32 or better.

    Args:
        layout ([`Layout`]): The sizes of the problem.
        query (`torch.Tensor` of shape `(batch, heads, queries, head_dim)`): States.
        key (`torch.Tensor` of shape `(batch, kv_heads, keys, head_dim)`): Stored patterns.
        settings ([`Settings`]): The settings of the call.
    """

    def __init__(self, layout: Layout, query: Tensor, key: Tensor, settings: Settings) -> None:
        self.layout = layout
        self.dtype = torch.promote_types(query.dtype, torch.float32)
        self.scaling, self.softcap = settings.scaling, settings.softcap
        self.row_settings = RowSettings(layout, settings, self.dtype)
        self.query = layout.grouped(query.to(self.dtype))
        # One table of all stored patterns; supports are indices into it.
        self.key = key.to(self.dtype).contiguous()
        self.mask = None if settings.mask is None else layout.grouped(settings.mask.to(torch.bool))
        self.bias = None if settings.bias is None else layout.grouped(settings.bias.to(self.dtype))
        self.causal = CausalMask(layout, settings.window, self.query, self.key) if settings.is_causal else None
        # Padding the keys copies them. For a few queries it is cheaper to pad the scores.
        missing = -layout.keys % key_unit(layout, settings)
        few = layout.queries * layout.groups < 64
        self.padded_key = F.pad(self.key, (0, 0, 0, missing)) if missing and not few else self.key

    @property
    def may_have_empty_rows(self) -> bool:
        """Whether a row may have no key to attend to."""
        sees_no_key = self.causal is not None and self.layout.keys < self.layout.queries
        return self.mask is not None or self.bias is not None or sees_no_key

    def scaled_query(self, block: Block) -> Tensor:
        """The rows of the query, scaled so that their products with keys are scores (or arguments of the softcap)."""
        query = self.layout.rows(self.query, block)
        if self.softcap:
            return query * (self.scaling / self.softcap)
        return query * (self.row_settings.beta_of(block) * self.scaling)

    def of(self, block: Block, scratch: Tensor) -> Tensor:
        """
        The scores of a block, -inf where a query may not attend.

        Args:
            block ([`Block`]): The block.
            scratch (`torch.Tensor`): Memory to write the scores to.

        Returns:
            `torch.Tensor` of shape `(kv heads, groups * queries, block.stop - block.first)`, contiguous.
        """
        query = self.scaled_query(block)
        key = self.layout.stored(self.padded_key, block)
        shape = (*query.shape[:2], key.shape[1])
        scores = scratch[: shape[0] * shape[1] * shape[2]].view(shape)
        torch.bmm(query, key.transpose(1, 2), out=scores)
        if self.softcap:
            scores.tanh_().mul_(self.row_settings.beta_of(block) * self.softcap)
        missing = block.stop - block.first - scores.shape[2]
        if missing:
            scores = F.pad(scores, (0, missing))
        real = self.layout.key_count(block)
        if real < scores.shape[2]:
            scores[..., real:] = -torch.inf
        grouped = self.layout.grouped_scores(scores, block)
        if self.bias is not None:
            grouped[..., :real].add_(self.layout.part(self.bias, block))
        if self.mask is not None:
            grouped[..., :real].masked_fill_(~self.layout.part(self.mask, block), -torch.inf)
        if self.causal is not None:
            self.causal.hide(grouped, block)
        return scores

    def capped(self, block: Block) -> Tensor:
        """`tanh(score / softcap)` of a block, without beta, bias and masks."""
        key = self.layout.stored(self.padded_key, block)
        return torch.bmm(self.scaled_query(block), key.transpose(1, 2)).tanh_()
