# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The parallel attention that is active. The attention and mask functions of `integration/attention.py` ask for it.

It is one for the whole process, as process groups are, and not a context variable: with gradient checkpointing, attention runs
again in the threads of torch's autograd engine, which do not see the context variables of the thread that called `backward`.
"""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ..integration.upstream import torch_context_parallel


class ParallelAttention(Protocol):
    """Attention to a sequence of which this process has a part."""

    def mask(self, **arguments: Any) -> Tensor | None:
        """
        Make the mask of a model. [`~ParallelAttention.attend`] gets what this returns.

        Args:
            **arguments: As for transformers' `sdpa_mask`, for the part of this process.
        """
        ...

    def attend(self, *args: Any, **kwargs: Any) -> Tensor:
        """
        Compute the attention of one layer.

        Args:
            *args: The attention module, its settings (`None` for a dense layer), and the query, key and value of this process.
            **kwargs: The other arguments of the attention function.

        Returns:
            `torch.Tensor` of shape `(batch, heads, queries, value_dim)`.
        """
        ...


_ACTIVE: list[ParallelAttention] = []
# Attention modules that ran in parallel, and would compute something else if they ran again without.
_RAN: "weakref.WeakSet[nn.Module]" = weakref.WeakSet()


@contextmanager
def activate(parallel: ParallelAttention) -> Iterator[None]:
    """
    Let all models of this process attend in parallel, until the context ends.

    Args:
        parallel ([`ParallelAttention`]): The parallel attention.
    """
    if _ACTIVE:
        raise RuntimeError(f"{type(_ACTIVE[-1]).__name__} is active already; parallel contexts do not nest.")
    _ACTIVE.append(parallel)
    try:
        yield
    finally:
        _ACTIVE.remove(parallel)


def active() -> ParallelAttention | None:
    """The parallel attention that is active: ours, or that of torch's context, which accelerate enters; `None` without."""
    theirs = torch_context_parallel()
    if theirs is None:
        return _ACTIVE[-1] if _ACTIVE else None
    if _ACTIVE:
        raise RuntimeError(
            f"torch's context_parallel and {type(_ACTIVE[-1]).__name__} are both active; use one of them."
        )
    from .context import in_torch_context

    return in_torch_context(*theirs)


def ran_in_parallel(module: nn.Module) -> None:
    """Note that an attention module ran in parallel."""
    _RAN.add(module)


def check_recomputed(module: nn.Module) -> None:
    """Raise if gradient checkpointing runs an attention module again that ran in parallel, and the context has ended."""
    # The backward pass that runs, if any; torch.utils.checkpoint asks in the same way.
    if _RAN and module in _RAN and torch._C._current_graph_task_id() != -1:
        raise RuntimeError(
            f"{type(module).__name__} ran in a parallel context and is computed again, by gradient checkpointing, after that "
            "context has ended: it would see only the part of this process. Call `backward` inside the context."
        )
