# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Low-rank updates of the attention modules of a model, by peft."""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from ..extras import require
from ..integration.sites import Site


if TYPE_CHECKING:
    from peft import PeftModel

_ADAPTER = "default"


def add_low_rank(model: PreTrainedModel, sites: Iterable[Site], rank: int) -> "PeftModel":
    """
    Put an adapter into the linear layers of attention modules. It changes nothing before it is trained.

    Args:
        model ([`~transformers.PreTrainedModel`]): The model. The layers are wrapped in place.
        sites (iterable of [`Site`]): Its attention modules.
        rank (`int`): Rank of the updates.
    """
    peft = require("peft", "peft")
    names = [
        f"{site.name}.{name}"
        for site in sites
        for name, module in site.module.named_modules()
        if isinstance(module, (nn.Linear, Conv1D))
    ]
    if not names:
        raise ValueError(
            f"rank={rank} is for linear layers, and the attention modules of {type(model).__name__} have none: train all weights."
        )
    transposed = any(isinstance(model.get_submodule(name), Conv1D) for name in names)  # as GPT-2 keeps its weights
    config = peft.LoraConfig(r=rank, lora_alpha=rank, target_modules=names, fan_in_fan_out=transposed)
    return peft.get_peft_model(model, config)


def is_low_rank(name: str) -> bool:
    """Return whether a parameter with this name belongs to an adapter."""
    return ".lora_" in name


@torch.no_grad()
def relative_change(module: nn.Module) -> float:
    """
    Return the norm of the updates in an attention module, relative to that of the weights.

    Args:
        module (`torch.nn.Module`): The attention module.
    """
    layers: list[Any] = [layer for layer in module.modules() if hasattr(layer, "get_delta_weight")]
    change = sum(float(layer.get_delta_weight(_ADAPTER).float().square().sum()) for layer in layers)
    size = sum(float(layer.get_base_layer().weight.float().square().sum()) for layer in layers)
    return math.sqrt(change / size) if size else 0.0
