# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""What the benchmark times: a retrieval of some shape, and random tensors with as much weight as wanted."""

import functools
import math
from dataclasses import dataclass

import torch

from ..functional import support_size


@dataclass(frozen=True)
class Work:
    """
    A retrieval to time.

    Args:
        kind (`str`): `"forward"`, `"training"` (forward and backward) or `"decode"` (one query per head).
        batch, heads, kv_heads, length, head_dim (`int`): Shapes; `length` is the number of keys.
        alpha (`float`): Member of the entmax family.
        support (`int`): Mean size of the support of a row; 0 means all keys (all scores nearly equal).
        is_causal (`bool`): Whether queries see only earlier keys.
        dtype (`str`): `"float32"` or `"bfloat16"`.
    """

    kind: str
    batch: int
    heads: int
    length: int
    alpha: float = 2.0
    support: int = 8
    is_causal: bool = False
    kv_heads: int = 0
    head_dim: int = 64
    dtype: str = "float32"

    @property
    def label(self) -> str:
        """Short name for tables."""
        heads = f"{self.heads}/{self.kv_heads}" if self.kv_heads else f"{self.heads}"
        shape = f"{self.batch}, {heads}, {self.length}, {self.head_dim}"
        return (
            f"{self.kind} {shape}{' causal' if self.is_causal else ''}{self.dtype.removeprefix('float32') and ' bf16'}"
        )

    def tensors(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Query, key and value with standard normal entries, with the query scaled to give the wanted support."""
        generator = torch.Generator().manual_seed(0)
        queries = 1 if self.kind == "decode" else self.length
        kv_heads = self.kv_heads or self.heads
        query = torch.randn(self.batch, self.heads, queries, self.head_dim, generator=generator)
        key, value = torch.randn(2, self.batch, kv_heads, self.length, self.head_dim, generator=generator).unbind()
        query *= sharpness_for(self.support, self.length, self.alpha)
        query, key, value = (tensor.to(getattr(torch, self.dtype)) for tensor in (query, key, value))
        for tensor in (query, key, value):
            tensor.requires_grad_(self.kind == "training")
        return query, key, value


@functools.cache
def sharpness_for(support: int, keys: int, alpha: float) -> float:
    """
    Standard deviation of normal scores whose rows have a mean support of about `support`.

    Args:
        support (`int`): Wanted mean size; 0 means all keys.
        keys (`int`): Length of a row.
        alpha (`float`): Member of the entmax family.

    Example:

    ```python
    >>> from hf_sparse_hopfield.benchmark import sharpness_for

    >>> sharpness_for(4, 1024, 2.0) > sharpness_for(16, 1024, 2.0)
    True
    ```
    """
    if support == 0:
        return 1e-4
    # Hardly any row has twice the mean support, and only the scores of its support matter to a row.
    scores = torch.randn(32, keys, generator=torch.Generator().manual_seed(1)).topk(min(keys, 8 * support + 64)).values
    low, high = 1e-4, 1e3
    for _ in range(16):
        middle = math.sqrt(low * high)
        if support_size(scores * middle, alpha).float().mean() > support:
            low = middle
        else:
            high = middle
    return math.sqrt(low * high)
