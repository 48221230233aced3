# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""[`PolynomialMemory`]: the polynomial memory of Krotov and Hopfield."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from ...checks import check_flag, check_integer, is_integer
from .vectors import checked_patterns, checked_queries, chosen_places, more_patterns, to_unit_length


class PolynomialMemory(nn.Module):
    """
    The polynomial memory of Krotov and Hopfield, a baseline for [`HopfieldMemory`].

    As a universal Hopfield network, one step of retrieval from the patterns xi_1 … xi_M is

        T(x) = sum of w_mu xi_mu        with w_mu = (xi_mu · x)^order, scaled to sum 1

    It has no temperature, because beta cancels, and so does the length of the query. As `order` is even, x and -x
    retrieve the same. A query that is orthogonal to all patterns retrieves zero.

    Args:
        patterns (`torch.Tensor` of shape `(M, d)`): Patterns to store; M may be 0 for a memory to be filled later.
        order (`int`, *optional*, defaults to 10): The exponent, even and at least 2.
        normalize (`bool`, *optional*, defaults to `False`):
            Scale stored patterns and queries to length 1, so that scores are cosines.

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield import PolynomialMemory
    >>> patterns = torch.randn(20, 64, generator=torch.Generator().manual_seed(0)).sign()
    >>> damaged = patterns[:3].clone()
    >>> damaged[:, 32:] = 0.0
    >>> torch.allclose(PolynomialMemory(patterns).retrieve(damaged), patterns[:3], atol=1e-3)  # near, never exactly
    True
    >>> PolynomialMemory(torch.eye(2), order=2).retrieve(torch.tensor([2.0, 1.0]))
    tensor([0.8000, 0.2000])

    ```
    """

    patterns: torch.Tensor

    def __init__(self, patterns: torch.Tensor, order: int = 10, normalize: bool = False) -> None:
        super().__init__()
        check_flag("normalize", normalize)
        self.normalize = normalize
        self.register_buffer("patterns", self._stored(checked_patterns(patterns)))
        if not is_integer(order) or order < 2 or order % 2:
            raise ValueError(
                f"order must be an even integer of at least 2, so that no weight is negative, got {order!r}."
            )
        self.order = order

    def _stored(self, patterns: torch.Tensor) -> torch.Tensor:
        return to_unit_length(patterns) if self.normalize else patterns.clone()

    def __len__(self) -> int:
        return self.patterns.shape[0]

    @property
    def dimension(self) -> int:
        """Width d of the patterns."""
        return self.patterns.shape[1]

    def add(self, patterns: torch.Tensor) -> range:
        """
        Store more patterns.

        Args:
            patterns (`torch.Tensor` of shape `(n, d)` or `(d,)`): Patterns to store, in any floating point dtype.

        Returns:
            `range`: The indices of the new patterns. Removing patterns shifts the indices of later ones.
        """
        first = len(self)
        patterns = self._stored(more_patterns(patterns, self.dimension, self.patterns))
        self.patterns = torch.cat([self.patterns, patterns])
        return range(first, len(self))

    def remove(self, indices: int | Sequence[int] | torch.Tensor) -> None:
        """
        Forget patterns.

        Args:
            indices (`int`, sequence of `int`, or `torch.Tensor`):
                The patterns to forget; negative indices count from the end. A boolean tensor of shape `(M,)` marks them.
        """
        keep = torch.ones(len(self), dtype=torch.bool)
        keep[chosen_places(indices, len(self))] = False
        self.patterns = self.patterns[keep.to(self.patterns.device)]

    def retrieve(self, queries: torch.Tensor, steps: int = 1) -> torch.Tensor:
        """
        Complete queries to stored patterns.

        Args:
            queries (`torch.Tensor` of shape `(..., d)`): The initial states, in the dtype of the patterns.
            steps (`int`, *optional*, defaults to 1): Number of times to apply T.

        Returns:
            `torch.Tensor` of shape `(..., d)`.
        """
        check_integer("steps", steps)
        queries = checked_queries(queries, self.dimension, self.patterns.dtype, len(self))
        queries = to_unit_length(queries) if self.normalize else queries
        dtype = torch.promote_types(queries.dtype, torch.float32)
        patterns, states = self.patterns.to(dtype), queries.to(dtype)
        with torch.autocast(states.device.type, enabled=False):  # half precision cannot hold the powers
            for _ in range(steps):
                scores = states @ patterns.T
                # Scale the largest to 1, so that its power neither overflows nor vanishes.
                scores = scores / scores.abs().amax(-1, keepdim=True).clamp_min(1e-30)
                powers = scores**self.order
                states = powers / powers.sum(-1, keepdim=True).clamp_min(1e-30) @ patterns
        return states.to(queries.dtype)

    def forward(self, queries: torch.Tensor, steps: int = 1) -> torch.Tensor:
        """The same as [`~PolynomialMemory.retrieve`], so that a memory can be used as a layer."""
        return self.retrieve(queries, steps)

    def extra_repr(self) -> str:
        settings = f"order={self.order}, normalize={self.normalize}"
        return f"{len(self)} patterns, dimension={self.dimension}, {settings}"

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        # The number of patterns is data, not architecture: it comes from the state dict.
        patterns = state_dict.get(prefix + "patterns")
        if patterns is not None and patterns.dim() == 2 and patterns.shape[1] == self.dimension:
            self.patterns = self.patterns.new_empty(patterns.shape)
        super()._load_from_state_dict(state_dict, prefix, *args)
