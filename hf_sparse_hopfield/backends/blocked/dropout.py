# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Dropout that the backward pass can repeat."""

from dataclasses import dataclass

import torch
from torch import Tensor

from .settings import Settings


@dataclass(frozen=True)
class Dropout:
    """
    The dropout of one call: the same seed gives the same factors in the forward and in the backward pass.

    Args:
        rate (`float`): Probability of dropping a weight.
        seed (`int`): Seed of the call.
    """

    rate: float
    seed: int

    @classmethod
    def of(cls, settings: Settings) -> "Dropout":
        """The dropout that the settings of a call ask for."""
        return cls(settings.dropout, 0 if settings.seed is None else int(settings.seed))

    def factors(self, like: Tensor, block: int, piece: int = 0) -> Tensor:
        """
        Factors for the weights: 0 or `1 / (1 - rate)`.

        Args:
            like (`torch.Tensor`): The weights; only their shape, dtype and device matter.
            block (`int`): Number of the block.
            piece (`int`, *optional*, defaults to 0): Number of the piece of the block.
        """
        if self.rate == 1:
            return torch.zeros_like(like)
        seed = (self.seed * 1000003 + (block << 20) + piece) % (1 << 62)
        generator = torch.Generator(like.device).manual_seed(seed)
        keep = torch.rand(like.shape, generator=generator, device=like.device) >= self.rate
        return keep.to(like.dtype) / (1 - self.rate)
