# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Checks of alpha, beta and length_power, as numbers or tensors."""

import math

import torch

from ..checks import is_number


_VALID = "sparse_hopfield_valid"
LARGEST_LENGTH_POWER = 4


def as_valid(setting: torch.Tensor) -> torch.Tensor:
    """
    Mark alpha or beta as valid, so that no check looks at its values again: that takes longer than a short retrieval.

    Args:
        setting (`torch.Tensor`): Values that are in their range by construction. Do not write others into it.

    Returns:
        `torch.Tensor`: The same tensor.
    """
    if not torch.compiler.is_compiling():
        vars(setting)[_VALID] = True
    return setting


def check_alpha(alpha: float | torch.Tensor) -> None:
    """Raise an error if alpha is not a number or not in [1, 2]."""
    if isinstance(alpha, torch.Tensor):
        if not alpha.is_floating_point():
            raise TypeError(f"alpha must be a float or a floating point tensor, got a tensor of dtype {alpha.dtype}.")
        # Reading values from an accelerator would stall it, and under torch.compile there are no values.
        if torch.compiler.is_compiling() or alpha.device.type != "cpu" or alpha.numel() == 0 or _VALID in vars(alpha):
            return
        low, high = alpha.detach().aminmax()
        if not (low >= 1 and high <= 2):
            raise ValueError(f"alpha must lie in [1, 2], got a tensor with values in [{low.item()}, {high.item()}].")
    elif not is_number(alpha):
        raise TypeError(f"alpha must be a float or a floating point tensor, got {alpha!r}.")
    elif not 1 <= alpha <= 2:
        raise ValueError(f"alpha must lie in [1, 2] (1: softmax, 1.5: entmax15, 2: sparsemax), got {alpha}.")


def check_beta(beta: float | torch.Tensor) -> None:
    """Raise an error if beta is not a positive, finite number."""
    if isinstance(beta, torch.Tensor):
        if not beta.is_floating_point():
            raise TypeError(f"beta must be a float or a floating point tensor, got a tensor of dtype {beta.dtype}.")
        if torch.compiler.is_compiling() or beta.device.type != "cpu" or beta.numel() == 0 or _VALID in vars(beta):
            return
        low, high = beta.detach().aminmax()
        if not (low > 0 and high < math.inf):
            raise ValueError(
                f"beta must be positive and finite, got a tensor with values in [{low.item()}, {high.item()}]."
            )
    elif not is_number(beta):
        raise TypeError(f"beta must be a float or a floating point tensor, got {beta!r}.")
    elif not 0 < beta < math.inf:
        raise ValueError(f"beta must be positive and finite, got {beta}.")


def check_length_power(power: float | torch.Tensor) -> None:
    """Raise an error if length_power is not a finite number. The limit keeps beta finite in rows of any length."""
    if isinstance(power, torch.Tensor):
        if not power.is_floating_point():
            raise TypeError(
                f"length_power must be a float or a floating point tensor, got a tensor of dtype {power.dtype}."
            )
        if torch.compiler.is_compiling() or power.device.type != "cpu" or power.numel() == 0 or _VALID in vars(power):
            return
        low, high = power.detach().aminmax()
        if not (low >= -LARGEST_LENGTH_POWER and high <= LARGEST_LENGTH_POWER):
            raise ValueError(
                f"length_power must lie in [-{LARGEST_LENGTH_POWER}, {LARGEST_LENGTH_POWER}], got a tensor with values in "
                f"[{low.item()}, {high.item()}]."
            )
    elif not is_number(power):
        raise TypeError(f"length_power must be a float or a floating point tensor, got {power!r}.")
    elif not -LARGEST_LENGTH_POWER <= power <= LARGEST_LENGTH_POWER:
        raise ValueError(f"length_power must lie in [-{LARGEST_LENGTH_POWER}, {LARGEST_LENGTH_POWER}], got {power}.")
