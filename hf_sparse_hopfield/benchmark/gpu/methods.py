# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The attentions that are compared on a GPU."""

import functools
from collections.abc import Callable
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from ...retrieval import retrieve
from ..methods import Attention, Screened
from ..work import Work
from .devices import TimingDevice


OPTIONAL = ("adasplash",)  # methods that are packages


class NotApplicable(Exception):
    """A method does not apply to a work; the message says why."""


def flash_applies(work: Work, tensors: tuple[Tensor, ...]) -> bool:
    """Whether the flash kernels of torch serve a work on these tensors."""
    from torch.backends.cuda import SDPAParams, can_use_flash_attention

    if not tensors[0].is_cuda:
        return False
    causal, grouped = work.is_causal and work.kind != "decode", bool(work.kv_heads)
    parameters = SDPAParams(*tensors, None, 0.0, causal, grouped)  # type: ignore[call-arg,arg-type]  # the stub is old
    return can_use_flash_attention(parameters)


def _sdpa(work: Work, device: TimingDevice, tensors: tuple[Tensor, ...]) -> tuple[Attention, str]:
    causal = work.is_causal and work.kind != "decode"
    attend = functools.partial(F.scaled_dot_product_attention, is_causal=causal, enable_gqa=bool(work.kv_heads))
    if not flash_applies(work, tensors):
        return attend, "default"

    def flash(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION]):
            return attend(query, key, value)

    return flash, "flash"


def _sees(batch: Tensor, head: Tensor, row: Tensor, key: Tensor) -> Tensor:
    return row >= key


def _flex(work: Work, device: TimingDevice, tensors: tuple[Tensor, ...]) -> tuple[Attention, str]:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    if work.kind == "training" and not tensors[0].is_cuda:
        raise NotApplicable("flex_attention has no backward pass on the CPU")
    attend: Callable[..., Any] = flex_attention
    make_mask: Callable[..., Any] = create_block_mask
    if not device.tiny:
        # Uncompiled, the mask has an entry for each pair. Without a reset torch gives up after a few shapes.
        torch.compiler.reset()
        attend = torch.compile(flex_attention, dynamic=False, fullgraph=True)
        make_mask = torch.compile(create_block_mask)
    mask = None
    if work.is_causal and work.kind != "decode":
        mask = make_mask(_sees, None, None, work.length, work.length, device=tensors[0].device)
    return functools.partial(attend, block_mask=mask, enable_gqa=bool(work.kv_heads)), "compiled"


def _adasplash(work: Work, device: TimingDevice, tensors: tuple[Tensor, ...]) -> tuple[Attention, str]:
    if work.kv_heads or work.kind == "decode":
        raise NotApplicable("adasplash needs as many queries as keys, and as many heads of them")
    from adasplash import adasplash_no_block_mask  # type: ignore[import-not-found]

    return functools.partial(adasplash_no_block_mask, alpha=work.alpha, is_causal=work.is_causal), "adasplash"


def _ours(
    work: Work, device: TimingDevice, tensors: tuple[Tensor, ...], backend: str, screened: bool = False
) -> tuple[Attention, str]:
    options: dict[str, Any] = {"alpha": work.alpha, "is_causal": work.is_causal, "backend": backend}
    if screened:
        return Screened(options), backend
    return cast(Attention, functools.partial(retrieve, screen=False, **options)), backend


METHODS: dict[str, Callable[[Work, TimingDevice, tuple[Tensor, ...]], tuple[Attention, str]]] = {
    "sdpa": _sdpa,
    "triton": functools.partial(_ours, backend="triton"),
    "screened": functools.partial(_ours, backend="triton", screened=True),
    "blocked": functools.partial(_ours, backend="blocked"),
    "adasplash": _adasplash,
    "flex": _flex,
}


def method(name: str, work: Work, device: TimingDevice, tensors: tuple[Tensor, ...]) -> tuple[Attention, str]:
    """
    The attention called `name`, made for `work`.

    Args:
        name (`str`):
            `"sdpa"` (flash attention where it applies), `"flex"` (compiled flex attention), `"triton"`, `"screened"` (the same with
            an int8 copy of the keys that is there before, as in a cache), `"blocked"` or `"adasplash"`.
        work ([`Work`]): The retrieval to time.
        device ([`TimingDevice`]): Where it is timed.
        tensors (`tuple[torch.Tensor, ...]`): Query, key and value.

    Returns:
        `tuple[Callable, str]`: The attention, and which kernels it uses. Raises [`NotApplicable`] if there is none.
    """
    return METHODS[name](work, device, tensors)
