# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Configuration of [`SparseHopfieldCrossformerForPrediction`]."""

import math
from typing import Any

from ...checks import check_choice, check_dropout, check_integer
from ...configuration import SparseHopfieldConfig
from ..registration import OwnConfig


ATTENTIONS = ("sparse", "dense", "softmax")
CENTERS = ("mean", "last")


class SparseHopfieldCrossformerConfig(OwnConfig):
    """
    Configuration of a Crossformer (Zhang and Yan, ICLR 2023) whose attention is Hopfield retrieval.

    The defaults of the architecture are those of the Crossformer paper.

    Args:
        num_input_channels (`int`, *optional*, defaults to 7): Number of series, the dimensions of the paper.
        context_length (`int`, *optional*, defaults to 168): Number of past time steps.
        prediction_length (`int`, *optional*, defaults to 24): Number of future time steps.
        segment_length (`int`, *optional*, defaults to 6):
            Time steps of a segment. If it does not divide the context, the context is padded in front with its first
            value; if it does not divide the prediction, the prediction is cut.
        merge_window (`int`, *optional*, defaults to 2): Neighboring segments that become one between encoder layers.
        num_routers (`int`, *optional*, defaults to 10): Routers of the cross-dimension stage.
        hidden_size (`int`, *optional*, defaults to 256): Width of a segment's embedding.
        intermediate_size (`int`, *optional*, defaults to 512): Width of the feed-forward layers.
        num_hidden_layers (`int`, *optional*, defaults to 3):
            Encoder layers. The decoder has one more, for the embedded input.
        num_attention_heads (`int`, *optional*, defaults to 4): Heads of every attention.
        dropout (`float`, *optional*, defaults to 0.2): Dropout of attention weights and of the output of each stage.
        center (`str`, *optional*):
            Value that is subtracted from the past of each series and added to its prediction: the `"mean"` of that past,
            its `"last"` value, or nothing (`None`, as published). It lets a model follow series whose level drifts away
            from that of the training data.
        attention (`str`, *optional*, defaults to `"sparse"`):
            `"sparse"` (Crossformer-SH): sparse Hopfield layers, alpha 2 unless given. `"dense"` (Crossformer-DH): the
            same layers with alpha 1. `"softmax"` (Crossformer): multi-head attention, which, unlike `"dense"`, does not
            apply layer norm to patterns before projecting them.
        alpha (`float`, *optional*):
            Member of the entmax family, in [1, 2]; defaults to 2 with `"sparse"`, and must be 1 otherwise.
        beta (`float`, *optional*, defaults to 1.0): Positive factor on the scaling of the scores.
        steps (`int`, *optional*, defaults to 1): Retrieval steps, the read-out included.
        tolerance (`float`, *optional*, defaults to 0.0): A state stops updating once it moves by less.
        learn_alpha (`bool`, *optional*, defaults to `False`): Learn alpha, one per head, starting from `alpha`.
        learn_beta (`bool`, *optional*, defaults to `False`): Learn beta, one per head, starting from `beta`.
        **kwargs: All other arguments of [`~transformers.PreTrainedConfig`].

    Example:

    ```python
    >>> from hf_sparse_hopfield import SparseHopfieldCrossformerConfig
    >>> config = SparseHopfieldCrossformerConfig(num_input_channels=3, context_length=50, segment_length=12)
    >>> config.num_context_segments, config.alpha
    (5, 2.0)

    ```
    """

    model_type = "sparse_hopfield_crossformer"

    def __init__(
        self,
        num_input_channels: int = 7,
        context_length: int = 168,
        prediction_length: int = 24,
        segment_length: int = 6,
        merge_window: int = 2,
        num_routers: int = 10,
        hidden_size: int = 256,
        intermediate_size: int = 512,
        num_hidden_layers: int = 3,
        num_attention_heads: int = 4,
        dropout: float = 0.2,
        center: str | None = None,
        attention: str = "sparse",
        alpha: float | None = None,
        beta: float = 1.0,
        steps: int = 1,
        tolerance: float = 0.0,
        learn_alpha: bool = False,
        learn_beta: bool = False,
        **kwargs: Any,
    ) -> None:
        sizes = {
            "num_input_channels": num_input_channels,
            "context_length": context_length,
            "prediction_length": prediction_length,
            "segment_length": segment_length,
            "merge_window": merge_window,
            "num_routers": num_routers,
            "hidden_size": hidden_size,
            "intermediate_size": intermediate_size,
            "num_hidden_layers": num_hidden_layers,
            "num_attention_heads": num_attention_heads,
        }
        for name, size in sizes.items():
            check_integer(name, size)
            setattr(self, name, size)
        if hidden_size % num_attention_heads:
            raise ValueError(
                f"hidden_size={hidden_size} must be a multiple of num_attention_heads={num_attention_heads}."
            )
        check_dropout("dropout", dropout)
        check_choice("center", center, CENTERS, optional=True)
        check_choice("attention", attention, ATTENTIONS)
        if alpha is None:
            alpha = 2.0 if attention == "sparse" else 1.0
        if attention != "sparse" and (alpha != 1 or learn_alpha):
            raise ValueError(
                f"attention={attention!r} needs alpha=1 and learn_alpha=False, got alpha={alpha!r} and "
                f'learn_alpha={learn_alpha!r}; use attention="sparse" for another alpha.'
            )
        # This checks the values, in one place for all models.
        retrieval = SparseHopfieldConfig(alpha, beta, steps, tolerance, learn_alpha=learn_alpha, learn_beta=learn_beta)
        plain = retrieval.to_dict()
        for name in ("alpha", "beta", "steps", "tolerance", "learn_alpha", "learn_beta"):
            setattr(self, name, plain[name])
        self.dropout = float(dropout)
        self.center = center
        self.attention = attention
        super().__init__(**kwargs)

    @property
    def num_context_segments(self) -> int:
        """Segments of the past, including a padded one."""
        return math.ceil(self.context_length / self.segment_length)

    @property
    def num_prediction_segments(self) -> int:
        """Segments of the future, including one that is cut."""
        return math.ceil(self.prediction_length / self.segment_length)
