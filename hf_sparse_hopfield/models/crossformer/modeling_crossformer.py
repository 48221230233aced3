# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Crossformer (Zhang and Yan, ICLR 2023) for multivariate time series, with Hopfield retrieval as its attention.

Written from the paper. Every series is cut into segments and each segment is embedded, so that the hidden states form a
grid `(batch, channels, segments, hidden_size)`. Every layer attends first along time, within a series, then across series,
within a segment of time. The second stage goes through a few learned routers, which gather from all series and distribute
to them.
"""

import math
from dataclasses import dataclass

import torch
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_utils import PreTrainedModel
from transformers.utils import ModelOutput

from ...layers import RetrievalParameters, SparseHopfield
from ...layers.association import HopfieldAssociation
from .configuration_crossformer import SparseHopfieldCrossformerConfig


@dataclass
class SparseHopfieldCrossformerOutput(ModelOutput):
    """
    Output of [`SparseHopfieldCrossformerForPrediction`].

    Args:
        loss (`torch.FloatTensor` of shape `()`, *optional*): Mean squared error, if `future_values` was given.
        prediction_outputs (`torch.FloatTensor` of shape `(batch, prediction_length, num_input_channels)`):
            The predicted values.

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield.models import SparseHopfieldCrossformerOutput
    >>> output = SparseHopfieldCrossformerOutput(prediction_outputs=torch.zeros(2, 24, 3))
    >>> output.loss is None, output["prediction_outputs"].shape
    (True, torch.Size([2, 24, 3]))

    ```
    """

    loss: torch.Tensor | None = None
    prediction_outputs: torch.Tensor | None = None


def _attention(config: SparseHopfieldCrossformerConfig) -> SparseHopfield:
    """The attention of the configuration. Plain multi-head attention is retrieval without normalized patterns."""
    normalize = config.attention != "softmax"
    return SparseHopfield(
        config.hidden_size,
        num_heads=config.num_attention_heads,
        update_steps_max=config.steps - 1,
        update_steps_eps=config.tolerance,
        alpha=config.alpha,
        beta=config.beta,
        learn_alpha=config.learn_alpha,
        learn_beta=config.learn_beta,
        normalize_stored_pattern=normalize,
        normalize_state_pattern=normalize,
        normalize_pattern_projection=normalize,
        dropout=config.dropout,
    )


class _AddAndNorm(nn.Module):
    """Residual connection with dropout, then layer norm."""

    def __init__(self, config: SparseHopfieldCrossformerConfig) -> None:
        super().__init__()
        self.dropout = nn.Dropout(config.dropout)
        self.norm = nn.LayerNorm(config.hidden_size)

    def forward(self, hidden_states: torch.Tensor, added: torch.Tensor) -> torch.Tensor:
        return self.norm(hidden_states + self.dropout(added))


class _FeedForward(nn.Module):
    def __init__(self, config: SparseHopfieldCrossformerConfig, intermediate_size: int) -> None:
        super().__init__()
        self.up = nn.Linear(config.hidden_size, intermediate_size)
        self.down = nn.Linear(intermediate_size, config.hidden_size)
        self.add_and_norm = _AddAndNorm(config)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.add_and_norm(hidden_states, self.down(nn.functional.gelu(self.up(hidden_states))))


class CrossformerTwoStageAttention(nn.Module):
    """
    Attention across time within each series, then across series within each segment of time.

    Args:
        config ([`SparseHopfieldCrossformerConfig`]): The model's configuration.
        num_segments (`int`): Number of segments; each has its own routers.
    """

    def __init__(self, config: SparseHopfieldCrossformerConfig, num_segments: int) -> None:
        super().__init__()
        self.time_attention = _attention(config)
        self.time_norm = _AddAndNorm(config)
        self.time_feed_forward = _FeedForward(config, config.intermediate_size)
        self.routers = nn.Parameter(torch.empty(num_segments, config.num_routers, config.hidden_size))
        self.gather_attention = _attention(config)
        self.distribute_attention = _attention(config)
        self.channel_norm = _AddAndNorm(config)
        self.channel_feed_forward = _FeedForward(config, config.intermediate_size)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """
        Args:
            hidden_states (`torch.Tensor` of shape `(batch, channels, segments, hidden_size)`): The grid.

        Returns:
            `torch.Tensor` of the same shape.
        """
        batch, channels, segments, _ = hidden_states.shape
        series = hidden_states.flatten(0, 1)
        series = self.time_feed_forward(self.time_norm(series, self.time_attention(series)))

        moments = series.unflatten(0, (batch, channels)).transpose(1, 2).flatten(0, 1)
        routers = self.routers.expand(batch, -1, -1, -1).flatten(0, 1)
        gathered = self.gather_attention((moments, routers, moments))
        moments = self.channel_norm(moments, self.distribute_attention((gathered, moments, gathered)))
        moments = self.channel_feed_forward(moments)
        return moments.unflatten(0, (batch, segments)).transpose(1, 2)


class CrossformerEncoderLayer(GradientCheckpointingLayer, CrossformerTwoStageAttention):
    """Two-stage attention on one scale of the past."""


class CrossformerSegmentMerging(nn.Module):
    """Merges every `merge_window` neighboring segments; the last window repeats its last segment to fill up."""

    def __init__(self, config: SparseHopfieldCrossformerConfig) -> None:
        super().__init__()
        self.window = config.merge_window
        self.norm = nn.LayerNorm(self.window * config.hidden_size)
        self.linear = nn.Linear(self.window * config.hidden_size, config.hidden_size)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """
        Args:
            hidden_states (`torch.Tensor` of shape `(batch, channels, segments, hidden_size)`): The grid.

        Returns:
            `torch.Tensor` of shape `(batch, channels, ceil(segments / merge_window), hidden_size)`.
        """
        missing = -hidden_states.shape[2] % self.window
        if missing:
            last = hidden_states[:, :, -1:].expand(-1, -1, missing, -1)
            hidden_states = torch.cat([hidden_states, last], dim=2)
        return self.linear(self.norm(hidden_states.unflatten(2, (-1, self.window)).flatten(3)))


class CrossformerDecoderLayer(GradientCheckpointingLayer):
    """Two-stage attention among future segments, attention to one scale of the past, and a part of the prediction."""

    def __init__(self, config: SparseHopfieldCrossformerConfig) -> None:
        super().__init__()
        self.self_attention = CrossformerTwoStageAttention(config, config.num_prediction_segments)
        self.past_attention = _attention(config)
        self.past_norm = _AddAndNorm(config)
        # As published: here no wider than the hidden states.
        self.feed_forward = _FeedForward(config, config.hidden_size)
        self.prediction = nn.Linear(config.hidden_size, config.segment_length)

    def forward(self, hidden_states: torch.Tensor, past: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """
        Args:
            hidden_states (`torch.Tensor` of shape `(batch, channels, prediction_segments, hidden_size)`): The future.
            past (`torch.Tensor` of shape `(batch, channels, segments, hidden_size)`): One scale of the encoder.

        Returns:
            `tuple[torch.Tensor, torch.Tensor]`: The hidden states, and this layer's part of the prediction, of shape
            `(batch, channels, prediction_segments * segment_length)`.
        """
        series = self.self_attention(hidden_states).flatten(0, 1)
        past = past.flatten(0, 1)
        series = self.feed_forward(self.past_norm(series, self.past_attention((past, series, past))))
        hidden_states = series.unflatten(0, hidden_states.shape[:2])
        return hidden_states, self.prediction(hidden_states).flatten(2)


class SparseHopfieldCrossformerForPrediction(PreTrainedModel):
    """
    Crossformer for predicting multivariate time series, with softmax, dense or sparse Hopfield attention.

    The model does not scale values: standardize them first, as [`split_series`] does. [`~transformers.Trainer`] trains and
    evaluates it without changes; with `label_names=["future_values"]` in its arguments, `compute_metrics` and `predict`
    also get the true values.

    Args:
        config ([`SparseHopfieldCrossformerConfig`]): The configuration.

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield import SparseHopfieldCrossformerConfig, SparseHopfieldCrossformerForPrediction
    >>> config = SparseHopfieldCrossformerConfig(num_input_channels=3, context_length=48, hidden_size=32)
    >>> model = SparseHopfieldCrossformerForPrediction(config)
    >>> model(past_values=torch.randn(2, 48, 3), future_values=torch.randn(2, 24, 3)).prediction_outputs.shape
    torch.Size([2, 24, 3])

    ```
    """

    config_class = SparseHopfieldCrossformerConfig
    base_model_prefix = "model"
    main_input_name = "past_values"
    supports_gradient_checkpointing = True
    _no_split_modules = ["CrossformerEncoderLayer", "CrossformerDecoderLayer"]

    def __init__(self, config: SparseHopfieldCrossformerConfig) -> None:
        super().__init__(config)
        channels, width = config.num_input_channels, config.hidden_size
        segments = config.num_context_segments
        self.embedding = nn.Linear(config.segment_length, width)
        self.past_positions = nn.Parameter(torch.empty(channels, segments, width))
        self.future_positions = nn.Parameter(torch.empty(channels, config.num_prediction_segments, width))
        self.embedding_norm = nn.LayerNorm(width)
        # Each layer but the first works on the merged segments of the layer before.
        self.mergings = nn.ModuleList()
        self.encoder_layers = nn.ModuleList()
        for index in range(config.num_hidden_layers):
            if index:
                self.mergings.append(CrossformerSegmentMerging(config))
                segments = math.ceil(segments / config.merge_window)
            self.encoder_layers.append(CrossformerEncoderLayer(config, segments))
        self.decoder_layers = nn.ModuleList(
            CrossformerDecoderLayer(config) for _ in range(config.num_hidden_layers + 1)
        )
        self.post_init()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        # The published model keeps torch's initialization and draws positions and routers from N(0, 1). The
        # initialization of Hopfield layers (standard deviation 0.02) would make all scores start near zero.
        if isinstance(module, (nn.Linear, nn.LayerNorm, RetrievalParameters)):
            module.reset_parameters()
        elif isinstance(module, HopfieldAssociation):
            assert module.in_proj_weight is not None and module.in_proj_bias is not None
            nn.init.kaiming_uniform_(module.in_proj_weight, a=math.sqrt(5))
            nn.init.zeros_(module.in_proj_bias)
        elif isinstance(module, CrossformerTwoStageAttention):
            nn.init.normal_(module.routers)
        elif module is self:
            nn.init.normal_(self.past_positions)
            nn.init.normal_(self.future_positions)

    def _embed(self, past_values: torch.Tensor) -> torch.Tensor:
        length = self.config.segment_length
        missing = -past_values.shape[1] % length
        if missing:
            past_values = torch.cat([past_values[:, :1].expand(-1, missing, -1), past_values], dim=1)
        segments = past_values.transpose(1, 2).unflatten(2, (-1, length))
        return self.embedding_norm(self.embedding(segments) + self.past_positions)

    def forward(
        self,
        past_values: torch.Tensor,
        future_values: torch.Tensor | None = None,
        past_observed_mask: torch.Tensor | None = None,
        future_observed_mask: torch.Tensor | None = None,
        return_loss: bool = True,
        return_dict: bool | None = None,
    ) -> SparseHopfieldCrossformerOutput | tuple[torch.Tensor, ...]:
        """
        Predict.

        Args:
            past_values (`torch.FloatTensor` of shape `(batch, context_length, num_input_channels)`): The past.
            future_values (`torch.FloatTensor` of shape `(batch, prediction_length, num_input_channels)`, *optional*):
                The true values, for the loss.
            past_observed_mask (`torch.BoolTensor` of the shape of `past_values`, *optional*):
                True where a value was observed; the mean of the observed past replaces all others, including NaN.
            future_observed_mask (`torch.BoolTensor` of the shape of `future_values`, *optional*):
                True where a value was observed; the loss is the mean over these, and 0 if there are none.
            return_loss (`bool`, *optional*, defaults to `True`):
                Return the loss if `future_values` is given. The name tells [`~transformers.Trainer`] that the model
                computes a loss without labels.
            return_dict (`bool`, *optional*): Return a [`SparseHopfieldCrossformerOutput`] instead of a tuple.

        Returns:
            [`SparseHopfieldCrossformerOutput`] or `tuple`.
        """
        config = self.config
        _check_shape("past_values", past_values, config.context_length, config.num_input_channels)
        if past_observed_mask is not None:
            _check_mask("past_observed_mask", past_observed_mask, past_values)
            past_values = _fill_with_mean(past_values, past_observed_mask)
        if config.center is None:
            prediction = self._predict(past_values)
        else:
            center = past_values[:, -1:] if config.center == "last" else past_values.mean(dim=1, keepdim=True)
            prediction = self._predict(past_values - center) + center
        loss = None
        if future_values is not None and return_loss:
            loss = self._prediction_loss(prediction, future_values, future_observed_mask)
        output = SparseHopfieldCrossformerOutput(loss=loss, prediction_outputs=prediction)
        return output if (config.return_dict if return_dict is None else return_dict) else output.to_tuple()

    def _predict(self, past_values: torch.Tensor) -> torch.Tensor:
        """The prediction for a complete, centered past."""
        scales = [self._embed(past_values)]
        for index, layer in enumerate(self.encoder_layers):
            scales.append(layer(self.mergings[index - 1](scales[-1]) if index else scales[-1]))
        hidden_states = self.future_positions.expand(past_values.shape[0], -1, -1, -1)
        parts = []
        for layer, past in zip(self.decoder_layers, scales, strict=True):
            hidden_states, part = layer(hidden_states, past)
            parts.append(part)
        prediction = sum(parts[1:], start=parts[0])
        return prediction[..., : self.config.prediction_length].transpose(1, 2)

    def _prediction_loss(
        self, prediction: torch.Tensor, future_values: torch.Tensor, future_observed_mask: torch.Tensor | None
    ) -> torch.Tensor:
        """Mean squared error of the observed values."""
        _check_shape("future_values", future_values, self.config.prediction_length, self.config.num_input_channels)
        if future_observed_mask is None:
            return nn.functional.mse_loss(prediction, future_values)
        _check_mask("future_observed_mask", future_observed_mask, future_values)
        prediction, truth = prediction[future_observed_mask], future_values[future_observed_mask]
        # The mean of nothing is NaN, but its sum is 0, with zero gradients.
        return nn.functional.mse_loss(prediction, truth, reduction="mean" if len(truth) else "sum")


def _check_shape(name: str, values: torch.Tensor, length: int, channels: int) -> None:
    if values.ndim != 3 or tuple(values.shape[1:]) != (length, channels):
        raise ValueError(
            f"{name} must have the shape (batch, {length}, {channels}) of the configuration, got {tuple(values.shape)}."
        )


def _check_mask(name: str, mask: torch.Tensor, values: torch.Tensor) -> None:
    if mask.dtype != torch.bool or mask.shape != values.shape:
        raise ValueError(
            f"{name} must be boolean (True = observed) and of shape {tuple(values.shape)}, got {mask.dtype} of shape "
            f"{tuple(mask.shape)}."
        )


def _fill_with_mean(values: torch.Tensor, observed: torch.Tensor) -> torch.Tensor:
    """Replace values that were not observed by the mean of the observed ones of their series, or by 0 without any."""
    known = values.masked_fill(~observed, 0.0)
    mean = known.sum(dim=1, keepdim=True) / observed.sum(dim=1, keepdim=True).clamp(min=1)
    return torch.where(observed, known, mean)
