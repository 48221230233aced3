# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`record_associations`: the weights of every head on one batch."""

from typing import Any

import torch
from torch import nn

from ..backends import RetrievalProblem
from ..model_running import evaluating, on_device
from ..observation import OwnSettings, observed, own_settings
from ..observed_problems import evaluate_weights
from ..retrieval_parameters import RetrievalParameters


class _Recorder(OwnSettings):
    def __init__(self) -> None:
        self.weights: dict[str, torch.Tensor] = {}
        self.parameters: dict[str, RetrievalParameters] = {}

    def observe(self, name: str, problem: RetrievalProblem) -> None:
        self.weights[name] = evaluate_weights(problem, *own_settings(self.parameters[name])).cpu()


@torch.no_grad()
def record_associations(model: nn.Module, inputs: dict[str, Any]) -> dict[str, torch.Tensor]:
    """
    The weights of each sparse layer of a model on one batch.

    Unlike `output_attentions=True` it works for every family, and names the layer of each weight.

    Args:
        model (`torch.nn.Module`): A converted model, or one made of Hopfield layers; not wrapped.
        inputs (`dict`): Model inputs.

    Returns:
        `dict[str, torch.Tensor]`: Path of each layer to weights `(batch, heads, queries, keys)`, on the CPU. A layer that
        runs more than once has those of its last call.

    Example:

    ```python
    >>> import torch
    >>> from transformers import BertConfig, BertModel
    >>> from hf_sparse_hopfield import to_sparse_hopfield
    >>> from hf_sparse_hopfield.diagnostics import record_associations

    >>> model = BertModel(BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, vocab_size=100))
    >>> weights = record_associations(to_sparse_hopfield(model), {"input_ids": torch.arange(9)[None]})
    >>> {name: tuple(weight.shape) for name, weight in weights.items()}["encoder.layer.1.attention.self"]
    (1, 4, 9, 9)

    ```
    """
    recorder = _Recorder()
    with evaluating(model), observed(model, recorder) as recorder.parameters:
        model(**on_device(inputs, model))
    return recorder.weights
