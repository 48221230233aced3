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
        inputs (`str`):
            `"sharp"`: independent numbers, with queries scaled for the wanted support, which lies anywhere among the keys.
            `"local"`: the same support, but 64 queries in a row look for the same 64 keys in a row, as neighbours in a text do.
            `"plain"`: independent standard normal numbers, with the support that they happen to have.
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
    inputs: str = "sharp"

    @property
    def label(self) -> str:
        """Short name for tables."""
        heads = f"{self.heads}/{self.kv_heads}" if self.kv_heads else f"{self.heads}"
        shape = f"{self.batch}, {heads}, {self.length}, {self.head_dim}"
        return (
            f"{self.kind} {shape}{' causal' if self.is_causal else ''}{self.dtype.removeprefix('float32') and ' bf16'}"
        )

    def tensors(self, device: torch.device | str = "cpu") -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """
        Query, key and value with standard normal entries, with the query scaled to give the wanted support.

        Args:
            device (`torch.device` or `str`, *optional*, defaults to `"cpu"`): Where they are drawn.
        """
        generator = torch.Generator(device).manual_seed(0)
        draw = functools.partial(torch.randn, generator=generator, device=device)
        queries = 1 if self.kind == "decode" else self.length
        kv_heads = self.kv_heads or self.heads
        query = draw(self.batch, self.heads, queries, self.head_dim)
        key, value = draw(2, self.batch, kv_heads, self.length, self.head_dim).unbind()
        if self.inputs == "sharp":
            query *= sharpness_for(self.support, self.length, self.alpha)
        elif self.inputs == "local":
            _share_topics(query, key, generator)
            scores = query[0, 0, -32:] @ key[0, 0].T * self.head_dim**-0.5
            query *= _factor_for(scores, self.support, self.alpha)
        query, key, value = (tensor.to(getattr(torch, self.dtype)) for tensor in (query, key, value))
        for tensor in (query, key, value):
            tensor.requires_grad_(self.kind == "training")
        return query, key, value


def _share_topics(query: torch.Tensor, key: torch.Tensor, generator: torch.Generator) -> None:
    """Give 64 keys in a row a topic, and 64 queries in a row the topic of keys that they see, also if they are causal."""
    draw = {"generator": generator, "device": key.device}
    blocks = -(-key.shape[2] // 64)
    topics = torch.randn(*key.shape[:2], blocks, key.shape[3], **draw)  # type: ignore[call-overload]
    key += topics.repeat_interleave(64, 2)[:, :, : key.shape[2]]
    first = blocks - -(-query.shape[2] // 64)
    places = torch.arange(first, blocks, device=key.device)
    chosen = (torch.rand(blocks - first, **draw) * (places + 1)).long()  # type: ignore[call-overload]
    sought = topics.repeat_interleave(query.shape[1] // key.shape[1], 1)[:, :, chosen]
    query += sought.repeat_interleave(64, 2)[:, :, : query.shape[2]]


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
    return _factor_for(scores, support, alpha)


def _factor_for(scores: torch.Tensor, support: int, alpha: float) -> float:
    """The factor on scores that gives their rows a mean support of about `support`."""
    low, high = 1e-4, 1e3
    for _ in range(16):
        middle = math.sqrt(low * high)
        if support_size(scores * middle, alpha).float().mean() > support:
            low = middle
        else:
            high = middle
    return math.sqrt(low * high)
