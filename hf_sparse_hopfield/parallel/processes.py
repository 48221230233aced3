# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The processes of a group, and what they tell each other."""

from typing import Any

import torch

# A custom operator imports it at its first call. Where that is after `init_process_group`, it keeps the group and its
# threads alive beyond `destroy_process_group`, and gloo may abort when the interpreter ends.
import torch._dynamo
import torch.distributed as dist
from torch import Tensor


class Processes:
    """
    The processes of a group and the collectives between them.

    Args:
        group (`torch.distributed.ProcessGroup` or one-dimensional `DeviceMesh`, *optional*): `None` for all processes.
    """

    def __init__(self, group: Any = None) -> None:
        if not dist.is_available() or not dist.is_initialized():
            raise RuntimeError("several processes need `torch.distributed.init_process_group` first.")
        self.group = group.get_group() if hasattr(group, "get_group") else group
        self.rank, self.size = dist.get_rank(self.group), dist.get_world_size(self.group)
        if self.rank < 0:
            raise ValueError("this process is not a member of the group.")

    def largest(self, tensor: Tensor) -> Tensor:
        """The maximum over the processes, in place."""
        dist.all_reduce(tensor, dist.ReduceOp.MAX, group=self.group)
        return tensor

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over the processes, in place."""
        dist.all_reduce(tensor, group=self.group)
        return tensor

    def send(self, tensor: Tensor | None, owner: int, like: Tensor, shape: tuple[int, ...]) -> Tensor:
        """The tensor that the owner has; the others give its dtype, device and shape."""
        tensor = like.new_empty(shape) if owner != self.rank or tensor is None else tensor.contiguous()
        dist.broadcast(tensor, group=self.group, group_src=owner)
        return tensor

    def collect(self, tensor: Tensor, owner: int) -> Tensor:
        """The sum over the processes, in place; only the owner may use it."""
        dist.reduce(tensor, group=self.group, group_dst=owner)
        return tensor

    def gather(self, numbers: list[int], device: torch.device) -> list[list[int]]:
        """The numbers of each process."""
        own = torch.tensor(numbers, dtype=torch.int64, device=device)
        everyone = [torch.empty_like(own) for _ in range(self.size)]
        dist.all_gather(everyone, own, group=self.group)
        return [other.tolist() for other in everyone]

    def gather_tensors(self, tensor: Tensor) -> list[Tensor]:
        """The tensors of all processes, which have the same shape."""
        everyone = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for _ in range(self.size)]
        dist.all_gather(everyone, tensor.contiguous(), group=self.group)
        return everyone

    def gather_objects(self, value: Any) -> list[Any]:
        """The values of all processes, which are small and can be pickled."""
        everyone: list[Any] = [None] * self.size
        dist.all_gather_object(everyone, value, group=self.group)
        return everyone
