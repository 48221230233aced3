# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Data parallelism: alpha and beta need nothing of their own under DDP and FSDP2, if they are there when the model is wrapped."""

import torch.distributed as dist
from torch import nn


def is_sharded(model: nn.Module) -> bool:
    """
    Whether a part of a model is sharded by FSDP2.

    Args:
        model (`torch.nn.Module`): The model.
    """
    if not dist.is_available() or not dist.is_initialized():
        return False
    from torch.distributed.fsdp import FSDPModule

    return any(isinstance(module, FSDPModule) for module in model.modules())
