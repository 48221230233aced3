# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Tensor parallelism: which heads of an attention module this process computes.

transformers (`from_pretrained(tp_plan="auto")`) and torch (`parallelize_module`) shard the projections of an attention module
as `DTensor`s, so that each process computes some of the heads. Alpha and beta stay whole in each process: they are a few
numbers, and whatever sets, logs or saves them need not know of tensor parallelism.
"""

import torch.distributed as dist
from torch import nn

from .heads import LocalHeads


def tensor_parallel_heads(module: nn.Module, heads: int, all_heads: int) -> LocalHeads | None:
    """
    The heads of an attention module that this process computes.

    Args:
        module (`torch.nn.Module`): The attention module.
        heads (`int`): The number of heads that it computes here.
        all_heads (`int`): The number of its heads in all processes.

    Returns:
        [`LocalHeads`] or `None`: `None` if no weight of the module is sharded, or not by heads.
    """
    if not dist.is_available() or not dist.is_initialized():
        return None
    from torch.distributed.tensor import DTensor

    meshes = (weight.device_mesh for weight in module.parameters() if isinstance(weight, DTensor))
    mesh = next(meshes, None)
    if mesh is None:
        return None
    mesh = mesh["tp"] if mesh.ndim > 1 else mesh  # with FSDP2
    if heads * mesh.size() != all_heads:
        return None
    start = mesh.get_local_rank() * heads
    return LocalHeads(start, start + heads, mesh.get_group(), sum_gradients=True)
