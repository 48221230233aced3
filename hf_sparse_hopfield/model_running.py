# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Run a model on batches: move a batch to the model, switch to evaluation mode, find the output to compare."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn


Batch = dict[str, Any]


def on_device(batch: Batch, model: nn.Module) -> Batch:
    """
    Move a batch to the device of a model.

    Args:
        batch (`dict`): Model inputs. Anything that is not a mapping is refused.
        model (`torch.nn.Module`): The model.
    """
    if not hasattr(batch, "items"):
        raise TypeError(
            "batches must yield dicts of model inputs (such as tokenizer(..., return_tensors='pt')), got "
            f"{type(batch).__name__}."
        )
    device = next(model.parameters()).device
    return {key: value.to(device) if isinstance(value, torch.Tensor) else value for key, value in batch.items()}


def batch_size(batch: Batch) -> int:
    """Return the number of samples in a batch."""
    return next((value.shape[0] for value in batch.values() if isinstance(value, torch.Tensor) and value.ndim), 1)


def main_output(outputs: Any) -> tuple[str, torch.Tensor]:
    """
    Return the name and value of the tensor by which a model's outputs are compared.

    These are the logits if there are any, else the first floating point tensor.

    Args:
        outputs ([`~transformers.utils.ModelOutput`] or `tuple`): The outputs of a model.
    """
    logits = getattr(outputs, "logits", None)
    if isinstance(logits, torch.Tensor):
        return "logits", logits
    entries = outputs.items() if hasattr(outputs, "items") else enumerate(outputs)
    named = [(str(name), value) for name, value in entries]
    # If no output is a tensor, take the first tensor of a tuple (the feature maps of a backbone).
    nested = [(name, value[0]) for name, value in named if isinstance(value, (tuple, list)) and value]
    for name, value in named + nested:
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.ndim and name != "loss":
            return name, value
    raise ValueError(f"the model returns {type(outputs).__name__} without a floating point tensor to compare.")


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode, and back into the mode it was in when the context ends."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)
