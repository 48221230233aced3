# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Train many models as one: multiple-instance classifiers of one configuration, with their parameters stacked.

The model of the library is used as it is. Its parameters get one more dimension in front, and the batch holds the bags of
the first model, then those of the second, and so on. A few large operators then replace many small ones, and elementwise
optimisers (Adam, AdamW) update each model as they would update it alone.
"""

import copy
from collections.abc import Sequence

import torch
from torch import nn

from hf_sparse_hopfield.layers import SparseHopfieldPooling
from hf_sparse_hopfield.layers.association import HopfieldAssociation
from hf_sparse_hopfield.models import SparseHopfieldForMultipleInstanceClassification as MultipleInstanceClassifier


def _linear(inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """One linear map per model: inputs `(models * n, ..., in)`, weight `(models, out, in)`, bias `(models, out)`."""
    rows = inputs.reshape(len(weight), -1, inputs.shape[-1])
    weight = weight.transpose(1, 2)
    outputs = torch.bmm(rows, weight) if bias is None else torch.baddbmm(bias[:, None], rows, weight)
    return outputs.reshape(*inputs.shape[:-1], weight.shape[2])


class StackedLinear(nn.Linear):
    """`torch.nn.Linear` for a stack of models."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return _linear(input, self.weight, self.bias)


class StackedLayerNorm(nn.LayerNorm):
    """`torch.nn.LayerNorm` for a stack of models."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        normal = nn.functional.layer_norm(input, self.normalized_shape, eps=self.eps)
        rows = normal.reshape(len(self.weight), -1, input.shape[-1])
        return torch.addcmul(self.bias[:, None], rows, self.weight[:, None]).reshape(input.shape)


class StackedAssociation(HopfieldAssociation):
    """The association for a stack of models."""

    def _apply_projection(self, inputs: torch.Tensor, part: str) -> torch.Tensor:
        rows = self._rows[part]
        bias = None if self.in_proj_bias is None else self.in_proj_bias[:, rows]
        return _linear(inputs, self.in_proj_weight[:, rows], bias)


class StackedPooling(SparseHopfieldPooling):
    """Hopfield pooling for a stack of models: each bag is paired with the state patterns of its model."""

    def _hopfield_input(self, input: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        models, _, quantity, width = self.pooling_weights.shape
        bags = len(input) // models
        state = self.pooling_weights.expand(models, bags, quantity, width).flatten(0, 1)
        return input, state, input


STACKED = {
    nn.Linear: StackedLinear,
    nn.LayerNorm: StackedLayerNorm,
    HopfieldAssociation: StackedAssociation,
    SparseHopfieldPooling: StackedPooling,
}


def stack(models: Sequence[MultipleInstanceClassifier]) -> MultipleInstanceClassifier:
    """
    Stack models into one.

    Args:
        models (sequence of [`SparseHopfieldForMultipleInstanceClassification`]): Models of one configuration.

    Returns:
        A model that takes `instances` of shape `(models * batch, instances, input_size)`, starting with the bags of the
        first model. Its parameters have the shape `(models, ...)`.
    """
    if any(model.config.to_dict() != models[0].config.to_dict() for model in models):
        raise ValueError("models must all have the same configuration.")
    stacked = copy.deepcopy(models[0])
    parts = [dict(model.named_modules()) for model in models]
    for name, module in stacked.named_modules():
        parameters = dict(module.named_parameters(recurse=False))
        if not parameters:
            continue
        if type(module) not in STACKED:
            raise ValueError(f"models has {name!r} of type {type(module).__name__}, which cannot be stacked.")
        for key in parameters:
            values = torch.stack([getattr(part[name], key).detach() for part in parts])
            setattr(module, key, nn.Parameter(values))
        module.__class__ = STACKED[type(module)]
    return stacked


def unstack(stacked: MultipleInstanceClassifier, number: int) -> MultipleInstanceClassifier:
    """
    Return one of the models in a stack as an ordinary model of the library.

    Args:
        stacked: From [`stack`].
        number (`int`): Index of the model.
    """
    model = MultipleInstanceClassifier(stacked.config)
    model.load_state_dict({name: value[number] for name, value in stacked.state_dict().items()})
    return model.train(stacked.training)
