# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""beta, alpha and the sink of each row."""

import torch
from torch import Tensor

from .layout import Block, Layout
from .settings import Settings


class RowSettings:
    """
    The settings that may differ from row to row.

    Args:
        layout ([`Layout`]): The sizes of the problem.
        settings ([`Settings`]): The settings of the call.
        dtype (`torch.dtype`): The precision of the computation.
    """

    def __init__(self, layout: Layout, settings: Settings, dtype: torch.dtype) -> None:
        self.layout = layout
        self.factor, self.alpha_value = settings.factor, settings.alpha_value
        self.beta = None if settings.beta is None else layout.grouped(settings.beta.to(dtype))
        self.alpha = None if settings.alpha is None else layout.grouped(settings.alpha.to(dtype))
        sinks = settings.sinks
        self.sinks = None if sinks is None else sinks.to(dtype).view(1, layout.kv_heads, layout.groups, 1, 1)

    def beta_of(self, block: Block) -> float | Tensor:
        """beta of the rows of a block, `(kv heads, groups * queries, 1)` if it is a tensor."""
        return self.factor if self.beta is None else self.layout.rows(self.beta, block)

    def eps_of(self, block: Block) -> float | Tensor:
        """alpha - 1 of the rows of a block, `(kv heads, groups * queries, 1)` if it is a tensor."""
        return self.alpha_value - 1 if self.alpha is None else self.layout.rows(self.alpha, block) - 1

    def sink_of(self, block: Block) -> Tensor | None:
        """Logit of the sink of each row of a block."""
        if self.sinks is None:
            return None
        return self.layout.rows(self.sinks.expand(self.layout.batch, -1, -1, self.layout.queries, 1), block)

    def beta_of_all(self) -> float | Tensor:
        """beta of all rows, `(rows,)` if it is a tensor."""
        return self.factor if self.beta is None else self._of_all(self.beta)

    def eps_of_all(self) -> float | Tensor:
        """alpha - 1 of all rows, `(rows,)` if it is a tensor."""
        return self.alpha_value - 1 if self.alpha is None else self._of_all(self.alpha) - 1

    def _of_all(self, setting: Tensor) -> Tensor:
        return setting.expand(*self.layout.row_shape, 1).reshape(-1)
