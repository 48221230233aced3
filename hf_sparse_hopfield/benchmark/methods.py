# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The attentions that the benchmark compares."""

import dataclasses
import functools
import importlib.util
from collections.abc import Callable
from typing import Any, cast

import torch
import torch.nn.functional as F

from ..backends import KeyScreen
from ..retrieval import explain_backend, retrieve
from .work import Work


Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def _grouped(work: Work, tensor: torch.Tensor) -> torch.Tensor:
    return tensor.repeat_interleave(work.heads // work.kv_heads, 1) if work.kv_heads else tensor


def _eager(work: Work, normalize: Callable[[torch.Tensor], torch.Tensor]) -> Attention:
    """Textbook attention: all scores at once."""

    def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        scores = query @ _grouped(work, key).transpose(-1, -2) * work.head_dim**-0.5
        if work.is_causal:
            hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1 + scores.shape[-1] - scores.shape[-2])
            scores = scores.masked_fill(hidden, -torch.inf)
        return normalize(scores) @ _grouped(work, value)

    return attend


def _sdpa(work: Work) -> Attention:
    causal = work.is_causal and work.kind != "decode"
    return functools.partial(F.scaled_dot_product_attention, is_causal=causal, enable_gqa=bool(work.kv_heads))


def _entmax(work: Work) -> Attention:
    from entmax import entmax15, entmax_bisect, sparsemax  # type: ignore[import-untyped]

    normalize = {2.0: sparsemax, 1.5: entmax15}.get(work.alpha) or functools.partial(entmax_bisect, alpha=work.alpha)
    return _eager(work, functools.partial(normalize, dim=-1))


def method(name: str, work: Work) -> Attention | None:
    """
    The attention called `name`, configured for `work`.

    Args:
        name (`str`):
            `"sdpa"`, `"eager softmax"`, `"entmax"`, `"auto"` or one of our backends; `"screened"` is the compiled core with an
            int8 copy of the keys that is there before, as in a cache, and `"unscreened"` the compiled core without one.
        work (`Work`): The retrieval to time.

    Returns:
        `Callable`, or `None` if the method is not installed or does not apply.
    """
    if name == "sdpa":
        return _sdpa(work)
    if name == "eager softmax":
        return _eager(work, functools.partial(torch.softmax, dim=-1))
    if name == "entmax":
        return _entmax(work) if importlib.util.find_spec("entmax") else None
    backend = "native" if name in ("screened", "unscreened") else name
    options: dict[str, Any] = {"alpha": work.alpha, "is_causal": work.is_causal, "backend": backend}
    try:
        explain_backend(*dataclasses.replace(work, length=16, support=0).tensors(), **options)
    except ValueError:  # the backend refuses this work
        return None
    if name == "screened":
        return Screened(options)
    if name == "unscreened":
        options["screen"] = False
    return cast(Attention, functools.partial(retrieve, **options))


class Screened:
    """Retrieval with the screen of the keys, which is made at the first call with them."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.key: torch.Tensor | None = None

    def __call__(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        if self.key is not key:
            self.key, self.screen = key, KeyScreen(key)
        return retrieve(query, key, value, screen=self.screen, **self.options)  # type: ignore[return-value]


def attend_once(work: Work, attend: Attention, tensors: tuple[torch.Tensor, ...]) -> None:
    """Attend as the work asks: forward alone, or forward and backward."""
    if work.kind == "training":
        output = attend(*tensors)
        torch.autograd.grad(output, tensors, torch.ones_like(output))
    else:
        with torch.no_grad():
            attend(*tensors)
