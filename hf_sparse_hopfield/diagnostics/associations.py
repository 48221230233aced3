# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`record_associations`: the weights of every head on one batch."""

from typing import Any

import torch
from torch import nn

from ..backends import RetrievalProblem
from ..evaluation import evaluating, on_device
from ..integration.binding import LayerRetrieval
from ..observation import Observer, Setting, evaluate, observed


class _Recorder(Observer):
    def __init__(self) -> None:
        self.weights: dict[str, torch.Tensor] = {}
        self.own: dict[str, tuple[Setting, Setting]] = {}

    def settings(self, name: str, retrieval: LayerRetrieval) -> tuple[Setting, Setting]:
        return retrieval()

    def observe(self, name: str, problem: RetrievalProblem) -> None:
        result = evaluate(problem, *self.own[name], return_weights=True, backend="reference")
        self.weights[name] = result.weights.cpu()


@torch.no_grad()
def record_associations(model: nn.Module, inputs: dict[str, Any]) -> dict[str, torch.Tensor]:
    """
    The weights with which each sparse attention module of a model reads its memories.

    Unlike `output_attentions=True` it works for every family, and gives the path of the module with the weights.

    Args:
        model ([`~transformers.PreTrainedModel`]): A model that retrieves sparsely.
        inputs (`dict`): Model inputs.

    Returns:
        `dict[str, torch.Tensor]`: Path of an attention module to weights `(batch, heads, queries, keys)`, on the CPU. Of a
        module that is called more than once, those of the last call.

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
    with evaluating(model), observed(model, recorder) as sites:
        recorder.own = {site.name: site.module.sparse_hopfield() for site in sites}
        model(**on_device(inputs, model))
    return recorder.weights
