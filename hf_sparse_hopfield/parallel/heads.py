# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The heads of a layer that this process computes. Every process holds the alpha and beta of all heads, and takes its own."""

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist

from ..backends import RetrievalProblem


@dataclass(frozen=True)
class LocalHeads:
    """
    The heads of a layer that this process computes: the processes of a group have consecutive ones.

    Args:
        start (`int`): The first head of this process.
        stop (`int`): The head after its last.
        group (`torch.distributed.ProcessGroup`, *optional*): The processes that have the other heads; `None` for all.
        sum_gradients (`bool`):
            Whether to sum the gradients of learned values over the group. In tensor parallelism each process must end up
            with the whole gradient. In sequence parallelism its gradients are partial for all weights alike, and whoever
            trains sums them.
    """

    start: int
    stop: int
    group: "dist.ProcessGroup | None"
    sum_gradients: bool

    def take(self, values: Any) -> Any:
        """
        The values of the heads of this process.

        Args:
            values (`float` or `torch.Tensor` of shape `(all heads,)`): One value for all heads, or one per head.
        """
        if not isinstance(values, torch.Tensor) or values.ndim == 0:
            return values
        if self.sum_gradients and values.requires_grad:
            values = _SummedGradient.apply(values, self.group)
        return values[self.start : self.stop]

    def all_heads(self, problem: RetrievalProblem) -> RetrievalProblem:
        """
        A problem with the heads of all processes, for observers. Each process of the group must call this.

        Args:
            problem ([`RetrievalProblem`]): The problem of the heads of this process.
        """
        heads = self.stop - self.start
        gathered: dict[str, Any] = {
            name: self._gather(getattr(problem, name), 1) for name in ("query", "key", "value")
        }
        for name in ("mask", "bias", "beta"):
            value = getattr(problem, name)
            if isinstance(value, torch.Tensor) and value.ndim == 4 and value.shape[1] == heads > 1:
                gathered[name] = self._gather(value, 1)
        if problem.sinks is not None:
            gathered["sinks"] = self._gather(problem.sinks, 0)
        return replace(problem, **gathered)

    def _gather(self, tensor: torch.Tensor, dim: int) -> torch.Tensor:
        tensor = tensor.detach().contiguous()
        parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size(self.group))]
        dist.all_gather(parts, tensor, group=self.group)
        return torch.cat(parts, dim)


class _SummedGradient(torch.autograd.Function):
    """The identity, whose gradient is the sum over the processes of a group."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, group: "dist.ProcessGroup | None") -> torch.Tensor:
        ctx.group = group
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        gradient = gradients[0].clone(memory_format=torch.contiguous_format)
        dist.all_reduce(gradient, group=ctx.group)
        return gradient, None
