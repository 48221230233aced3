# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`SparseHopfieldPooling`: learned state patterns pool a set of patterns to a fixed size."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from .hopfield import LearnedPatternHopfield, SparseHopfield


class SparseHopfieldPooling(LearnedPatternHopfield):
    """
    Pool a set of stored patterns: learned state patterns retrieve from it.

    `alpha=1` is the dense twin, `HopfieldPooling` of Ramsauer et al.

    Args:
        input_size (`int`): Width of the learned state patterns.
        hidden_size, output_size, pattern_size, num_heads, scaling, update_steps_max, update_steps_eps:
            As in [`SparseHopfield`].
        quantity (`int`, *optional*, defaults to 1): Number of learned state patterns.
        trainable (`bool`, *optional*, defaults to `True`): Train them; otherwise they stay random.
        **options: All other arguments of [`SparseHopfield`].

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield import SparseHopfieldPooling
    >>> pool = SparseHopfieldPooling(input_size=16, num_heads=2, quantity=3)
    >>> bag = torch.randn(2, 50, 16)
    >>> is_padding = torch.arange(50).expand(2, 50) >= torch.tensor([[50], [20]])
    >>> pool(bag, stored_pattern_padding_mask=is_padding).shape
    torch.Size([2, 48])

    ```
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int | None = None,
        output_size: int | None = None,
        pattern_size: int | None = None,
        num_heads: int = 1,
        scaling: float | Sequence[float] | torch.Tensor | None = None,
        update_steps_max: int | None = 0,
        update_steps_eps: float = 1e-4,
        *,
        quantity: int = 1,
        trainable: bool = True,
        **options: Any,
    ) -> None:
        if input_size is None:
            raise ValueError("input_size must be given: it is the width of the learned state patterns.")
        hopfield = SparseHopfield(
            input_size,
            hidden_size,
            output_size,
            pattern_size,
            num_heads,
            scaling,
            update_steps_max,
            update_steps_eps,
            **options,
        )
        super().__init__(hopfield, quantity)
        width = hopfield.expected_widths["state_pattern"]
        if width is None:
            # Static states and static stored patterns only need the same width.
            width = hopfield.expected_widths["stored_pattern"] or hopfield.hidden_size or input_size
        self.pooling_weights = self._learned_patterns(width, trainable)
        nn.init.normal_(self.pooling_weights, std=0.02)

    def reset_parameters(self) -> None:
        """Initialize all parameters again."""
        self.hopfield.reset_parameters()
        nn.init.normal_(self.pooling_weights, std=0.02)

    def _hopfield_input(
        self, input: torch.Tensor | tuple[torch.Tensor, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        if isinstance(input, torch.Tensor):
            return input, self.pooling_weights, input
        if isinstance(input, (tuple, list)) and len(input) == 2:
            return input[0], self.pooling_weights, input[1]
        raise TypeError(
            "input must be a tensor or two tensors (stored_pattern, pattern_projection), got "
            + (f"{len(input)} elements." if isinstance(input, (tuple, list)) else f"{type(input).__name__}.")
        )

    def forward(
        self,
        input: torch.Tensor | tuple[torch.Tensor, torch.Tensor],
        stored_pattern_padding_mask: torch.Tensor | None = None,
        association_mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """
        Pool.

        Args:
            input (`torch.Tensor` of shape `(batch, stored, width)` or tuple of two): The patterns to pool, or the
                tuple `(stored_pattern, pattern_projection)`.
            stored_pattern_padding_mask (`torch.BoolTensor` of shape `(batch, stored)`, *optional*): True = padding.
            association_mask (`torch.Tensor`, *optional*): As in [`SparseHopfield`], with `quantity` states.

        Returns:
            `torch.Tensor` of shape `(batch, quantity * output_size)`, whatever `batch_first` is.
        """
        output = self.hopfield(self._hopfield_input(input), stored_pattern_padding_mask, association_mask)
        # Unlike hflayers, which flattens (quantity, batch, output_size) too and so joins samples in one row.
        return (output if self.batch_first else output.transpose(0, 1)).flatten(1)
