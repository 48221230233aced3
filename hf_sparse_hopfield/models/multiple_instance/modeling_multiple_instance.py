# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The multiple-instance classifier: embed the instances, aggregate the bag, classify."""

from typing import Any, cast

import torch
from torch import nn
from transformers import initialization
from transformers.activations import ACT2FN
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.modeling_utils import PreTrainedModel

from ...checks import check_choice
from ...functional import entmax
from ...layers import RetrievalParameters, SparseHopfield, SparseHopfieldPooling
from ...layers.association import HopfieldAssociation
from .configuration_multiple_instance import ATTENTION_AGGREGATIONS, SparseHopfieldMultipleInstanceConfig


class AttentionPooling(nn.Module):
    """
    Weighted means of the instances of a bag (Ilse et al. 2018).

    The score of an instance h is w tanh(V h), or w (tanh(V h) * sigmoid(U h)) with a gate, for each head. The weights are
    the alpha-entmax of the scores.

    Args:
        config ([`SparseHopfieldMultipleInstanceConfig`]): The configuration.
    """

    def __init__(self, config: SparseHopfieldMultipleInstanceConfig) -> None:
        super().__init__()
        width = config.num_heads * config.head_size
        # With attention, the configuration accepts one number only.
        self.alpha, self.beta = cast("float", config.alpha), cast("float", config.beta)
        self.dropout = config.bag_dropout
        self.hidden = nn.Linear(config.hidden_size, width)
        self.gate = nn.Linear(config.hidden_size, width) if config.aggregation == "gated_attention" else None
        self.score = nn.Linear(width, config.num_heads)
        self.output_size = config.num_heads * config.hidden_size

    def scores(self, instances: torch.Tensor) -> torch.Tensor:
        """
        The scores of the instances.

        Args:
            instances (`torch.Tensor` of shape `(batch, instances, width)`): The bags.

        Returns:
            `torch.Tensor` of shape `(batch, heads, instances)`.
        """
        hidden = self.hidden(instances).tanh()
        if self.gate is not None:
            hidden = hidden * self.gate(instances).sigmoid()
        return self.beta * self.score(hidden).transpose(1, 2)

    def weights(self, instances: torch.Tensor, padding_mask: torch.Tensor | None = None) -> torch.Tensor:
        """
        The weights of the instances.

        Args:
            instances (`torch.Tensor` of shape `(batch, instances, width)`): The bags.
            padding_mask (`torch.BoolTensor` of shape `(batch, instances)`, *optional*): True = padding.

        Returns:
            `torch.Tensor` of shape `(batch, heads, 1, instances)`; zeros for an empty bag.
        """
        mask = None if padding_mask is None else ~padding_mask[:, None, :]
        return entmax(self.scores(instances), alpha=self.alpha, mask=mask).unsqueeze(2)

    def forward(self, instances: torch.Tensor, padding_mask: torch.Tensor | None = None) -> torch.Tensor:
        """
        Pool.

        Args:
            instances, padding_mask: As for [`~AttentionPooling.weights`].

        Returns:
            `torch.Tensor` of shape `(batch, heads * width)`: The means of all heads, concatenated.
        """
        weights = nn.functional.dropout(self.weights(instances, padding_mask).squeeze(2), self.dropout, self.training)
        return (weights @ instances).flatten(1)


class SparseHopfieldForMultipleInstanceClassification(PreTrainedModel):
    """
    A classifier of bags. A label belongs to a bag; its instances have none.

    Each instance is embedded, the bag is aggregated to one vector by sparse or dense Hopfield retrieval or by attention,
    and a linear layer classifies the vector. Neither the order of the instances nor padding has an effect.

    Args:
        config ([`SparseHopfieldMultipleInstanceConfig`]): The configuration.

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield import SparseHopfieldForMultipleInstanceClassification, SparseHopfieldMultipleInstanceConfig
    >>> config = SparseHopfieldMultipleInstanceConfig(input_size=16, embedding_layers=1)
    >>> model = SparseHopfieldForMultipleInstanceClassification(config)
    >>> bags, mask = torch.randn(2, 10, 16), torch.ones(2, 10)
    >>> mask[1, 4:] = 0  # the second bag has four instances
    >>> output = model(bags, mask, labels=torch.tensor([0, 1]), output_attentions=True)
    >>> output.logits.shape, output.attentions.shape
    (torch.Size([2, 2]), torch.Size([2, 8, 1, 10]))

    ```
    """

    config_class = SparseHopfieldMultipleInstanceConfig
    base_model_prefix = "sparse_hopfield_multiple_instance"
    main_input_name = "instances"
    supports_gradient_checkpointing = True

    def __init__(self, config: SparseHopfieldMultipleInstanceConfig) -> None:
        super().__init__(config)
        self.loss_type = "ForSequenceClassification"
        layers: list[nn.Module] = []
        width = config.input_size
        for _ in range(config.embedding_layers):
            layers += [nn.Linear(width, config.embedding_size), nn.ReLU()]
            width = config.embedding_size
        self.embedding = nn.Sequential(*layers)
        self.aggregation = _aggregation(config)
        activation = config.classifier_activation
        check_choice("classifier_activation", activation, ACT2FN, optional=True)
        self.activation = None if activation is None else ACT2FN[activation]
        if isinstance(self.aggregation, AttentionPooling):
            width = self.aggregation.output_size
        else:
            width *= config.quantity
        self.classifier = nn.Linear(width, cast("int", config.num_labels))
        self.gradient_checkpointing = False
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        std = self.config.initializer_range
        if isinstance(module, RetrievalParameters):
            module.reset_parameters()
        elif isinstance(module, nn.LayerNorm):
            initialization.ones_(module.weight)
            initialization.zeros_(module.bias)
        elif isinstance(module, SparseHopfieldPooling):
            initialization.normal_(module.pooling_weights, std=1.0 if std is None else std)
        elif isinstance(module, (nn.Linear, HopfieldAssociation)):
            weight = module.weight if isinstance(module, nn.Linear) else module.in_proj_weight
            assert weight is not None, "a joint projection: all inputs of a layer have one width"
            bound = weight.shape[1] ** -0.5
            for name, parameter in module.named_parameters(recurse=False):
                if std is None:
                    initialization.uniform_(parameter, -bound, bound)
                elif name.endswith("weight"):
                    initialization.normal_(parameter, std=std)
                else:
                    initialization.zeros_(parameter)

    def forward(
        self,
        instances: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        output_attentions: bool | None = None,
        return_dict: bool | None = None,
    ) -> SequenceClassifierOutput | tuple[torch.Tensor, ...]:
        """
        Classify bags.

        Args:
            instances (`torch.Tensor` of shape `(batch, instances, input_size)`): The bags, padded to one size.
            attention_mask (`torch.Tensor` of shape `(batch, instances)`, *optional*): 1 for an instance, 0 for padding.
            labels (`torch.LongTensor` of shape `(batch,)`, *optional*): Labels of the bags, for the loss.
            output_attentions (`bool`, *optional*): Also return the association matrix, without gradients.
            return_dict (`bool`, *optional*): Return a [`~transformers.utils.ModelOutput`], not a tuple.

        Returns:
            [`~transformers.modeling_outputs.SequenceClassifierOutput`]: `loss`, `logits` of shape `(batch, num_labels)` and
            `attentions` of shape `(batch, heads, states, instances)`.
        """
        self._check(instances, attention_mask)
        if output_attentions is None:
            output_attentions = self.config.output_attentions
        padding_mask = None
        if attention_mask is not None:
            padding_mask = attention_mask == 0
            instances = instances.masked_fill(padding_mask[..., None], 0.0)  # a weight of 0 does not cancel NaN
        embedded = self.embedding(instances)
        if self.gradient_checkpointing and self.training:
            bag = self._gradient_checkpointing_func(self.aggregation, embedded, padding_mask)
        else:
            bag = self.aggregation(embedded, padding_mask)
        if self.config.aggregation == "hopfield":
            bag = _mean(bag, attention_mask)
        if self.activation is not None:
            bag = self.activation(bag)
        logits = self.classifier(bag)
        loss = None
        if labels is not None:
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config)
        attentions = self._weights(embedded, padding_mask) if output_attentions else None
        output = SequenceClassifierOutput(loss=loss, logits=logits, attentions=attentions)  # type: ignore[arg-type] # one layer
        return output if (self.config.return_dict if return_dict is None else return_dict) else output.to_tuple()

    @torch.no_grad()
    def _weights(self, embedded: torch.Tensor, padding_mask: torch.Tensor | None) -> torch.Tensor:
        if isinstance(self.aggregation, AttentionPooling):
            return self.aggregation.weights(embedded, padding_mask)
        return self.aggregation.get_association_matrix(embedded, padding_mask)

    def _check(self, instances: torch.Tensor, attention_mask: torch.Tensor | None) -> None:
        if instances.dim() != 3 or not instances.shape[1] or instances.shape[2] != self.config.input_size:
            raise ValueError(
                f"instances must have shape (batch, at least 1, input_size={self.config.input_size}), "
                f"got {tuple(instances.shape)}."
            )
        if attention_mask is None:
            return
        if attention_mask.shape != instances.shape[:2]:
            raise ValueError(
                f"attention_mask must have shape (batch, instances) = {tuple(instances.shape[:2])}, "
                f"got {tuple(attention_mask.shape)}."
            )
        additive = attention_mask.is_floating_point() and not torch.compiler.is_compiling()
        if additive and bool((attention_mask < 0).any()):
            raise ValueError(
                "attention_mask must be 1 for an instance and 0 for padding; it is not added to the scores. Got a mask with "
                f"the value {attention_mask.min().item()}."
            )


def _aggregation(
    config: SparseHopfieldMultipleInstanceConfig,
) -> AttentionPooling | SparseHopfieldPooling | SparseHopfield:
    """The module that makes one vector of a bag, or one of each instance if the aggregation is `"hopfield"`."""
    if config.aggregation in ATTENTION_AGGREGATIONS:
        return AttentionPooling(config)
    options: dict[str, Any] = {
        "input_size": config.hidden_size,
        "hidden_size": config.head_size,
        "num_heads": config.num_heads,
        "scaling": config.scaling,
        "update_steps_max": config.update_steps,
        "update_steps_eps": config.update_eps,
        "alpha": config.alpha,
        "beta": config.beta,
        "learn_alpha": config.learn_alpha,
        "learn_beta": config.learn_beta,
        "normalize_stored_pattern": config.normalize,
        "normalize_state_pattern": config.normalize,
        "normalize_pattern_projection": config.normalize,
        "dropout": config.bag_dropout,
    }
    if config.aggregation == "pooling":
        return SparseHopfieldPooling(**options, quantity=config.quantity)
    return SparseHopfield(**options)


def _mean(patterns: torch.Tensor, attention_mask: torch.Tensor | None) -> torch.Tensor:
    """Mean over the instances that are not padding; zeros for an empty bag."""
    if attention_mask is None:
        return patterns.mean(1)
    weights = attention_mask.to(patterns.dtype)[..., None]
    return (patterns * weights).sum(1) / weights.sum(1).clamp(min=1.0)
