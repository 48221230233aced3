# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`SparseHopfieldLayer`: the stored patterns are learned, the layer is a lookup table."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from ..checks import check_flag
from .hopfield import LearnedPatternHopfield, SparseHopfield


class SparseHopfieldLayer(LearnedPatternHopfield):
    """
    Look up the input in learned stored patterns.

    `alpha=1` is the dense twin, `HopfieldLayer` of Ramsauer et al.

    Args:
        input_size (`int`): Width of the input.
        hidden_size, output_size, pattern_size, num_heads, scaling, update_steps_max, update_steps_eps:
            As in [`SparseHopfield`].
        quantity (`int`, *optional*, defaults to 1): Number of learned stored patterns.
        trainable (`bool`, *optional*, defaults to `True`): Train them; otherwise they stay random.
        lookup_weights_as_separated (`bool`, *optional*, defaults to `False`):
            Read out targets that are learned separately from the stored patterns.
        lookup_targets_as_trainable (`bool`, *optional*, defaults to `True`): Train the separate targets.
        **options: All other arguments of [`SparseHopfield`].

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield import SparseHopfieldLayer
    >>> layer = SparseHopfieldLayer(input_size=16, output_size=8, num_heads=2, quantity=100)
    >>> layer(torch.randn(4, 5, 16)).shape
    torch.Size([4, 5, 8])

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
        lookup_weights_as_separated: bool = False,
        lookup_targets_as_trainable: bool = True,
        **options: Any,
    ) -> None:
        if input_size is None:
            raise ValueError("input_size must be given: it is the width of the learned stored patterns.")
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
        check_flag("lookup_weights_as_separated", lookup_weights_as_separated)
        widths = hopfield.expected_widths
        # Even if any width fits, static stored patterns must be as wide as the static states.
        width = widths["stored_pattern"] or widths["state_pattern"] or hopfield.hidden_size or input_size
        target_width = widths["pattern_projection"] or options.get("pattern_projection_size") or width
        self.lookup_weights = self._learned_patterns(width, trainable)
        if lookup_weights_as_separated:
            self.target_weights = self._learned_patterns(target_width, lookup_targets_as_trainable)
        else:
            if not lookup_targets_as_trainable:
                raise ValueError(
                    "lookup_targets_as_trainable=False needs lookup_weights_as_separated=True: without it there are "
                    "no separate targets. Use trainable=False to fix the stored patterns."
                )
            if target_width != width:
                raise ValueError(
                    f"the stored patterns have width {width} and the pattern projections width {target_width}, so they "
                    f"cannot be the same weights. Set lookup_weights_as_separated=True, or make the widths equal."
                )
            self.register_parameter("target_weights", None)
        self._reset_patterns()

    def _reset_patterns(self) -> None:
        nn.init.normal_(self.lookup_weights, std=0.02)
        if self.target_weights is not None:
            nn.init.normal_(self.target_weights, std=0.02)

    def reset_parameters(self) -> None:
        """Initialize all parameters again."""
        self.hopfield.reset_parameters()
        self._reset_patterns()

    def _hopfield_input(self, input: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        if not isinstance(input, torch.Tensor):
            raise TypeError(f"input must be one tensor, the state patterns, got {type(input).__name__}.")
        targets = self.lookup_weights if self.target_weights is None else self.target_weights
        return self.lookup_weights, input, targets

    def forward(
        self,
        input: torch.Tensor,
        stored_pattern_padding_mask: torch.Tensor | None = None,
        association_mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """
        Look up.

        Args:
            input (`torch.Tensor` of shape `(batch, states, input_size)`): The state patterns.
            stored_pattern_padding_mask (`torch.BoolTensor` of shape `(batch or 1, quantity)`, *optional*):
                True where a learned pattern must not be used.
            association_mask (`torch.Tensor`, *optional*): As in [`SparseHopfield`], with `quantity` stored patterns.

        Returns:
            `torch.Tensor` of shape `(batch, states, output_size)`: The retrieved patterns.
        """
        return self.hopfield(self._hopfield_input(input), stored_pattern_padding_mask, association_mask)
