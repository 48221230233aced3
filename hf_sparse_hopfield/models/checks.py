# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""What the configurations of our own models refuse. Knows neither torch nor transformers."""

import math
from typing import Any


def check_sizes(**sizes: Any) -> None:
    """Refuse sizes that are not positive integers."""
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ValueError(f"{name} must be a positive integer, got {size!r}.")


def check_dropout(name: str, rate: Any) -> None:
    """Refuse a rate of dropout that is no number in [0, 1)."""
    if not _is_number(rate) or not 0.0 <= rate < 1.0:
        raise ValueError(f"{name} must be a probability in [0, 1), got {rate!r}.")


def check_finite(name: str, value: Any, positive: bool) -> None:
    """Refuse what is no finite number above 0, or of at least 0."""
    if not _is_number(value) or not math.isfinite(value) or value < 0 or (positive and value == 0):
        raise ValueError(f"{name} must be {'positive' if positive else 'at least 0'} and finite, got {value!r}.")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
