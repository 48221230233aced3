# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The settings of a call, in the order in which the operators take them."""

from typing import NamedTuple

from torch import Tensor


# The same fields in the language of operator schemas.
SCHEMA = (
    "Tensor? beta, Tensor? alpha, Tensor? mask, Tensor? bias, Tensor? sinks, Tensor? seed, float scaling, "
    "float beta_value, float alpha_value, bool is_causal, int sliding_window, float dropout, "
    "Tensor? codes, Tensor? scales, Tensor? bounds, int screening, int screen_first"
)


class Settings(NamedTuple):
    """
    The arguments of the operators after query, key and value.

    Args:
        beta, alpha (`torch.Tensor` broadcastable to `(batch, heads, queries, 1)`, *optional*):
            As in `RetrievalProblem`.
        mask, bias (`torch.Tensor` with four dimensions, *optional*): As in `RetrievalProblem`.
        sinks (`torch.Tensor` of shape `(heads,)`, *optional*): Logit of one extra column.
        seed (`torch.Tensor`, *optional*): Seed of the dropout.
        scaling (`float`): Factor on the scores.
        beta_value, alpha_value (`float`): beta and alpha if they are numbers.
        is_causal (`bool`): As in `RetrievalProblem`.
        sliding_window (`int`): Size of the sliding window; 0 means none.
        dropout (`float`): Probability of dropping a weight.
        codes, scales, bounds (`torch.Tensor`, *optional*): Those of a [`KeyScreen`].
        screening (`int`): Whether to use a screen: never, that one, or one that the core makes for the call.
        screen_first (`int`): Place of the first key in the screen.
    """

    beta: Tensor | None
    alpha: Tensor | None
    mask: Tensor | None
    bias: Tensor | None
    sinks: Tensor | None
    seed: Tensor | None
    scaling: float
    beta_value: float
    alpha_value: float
    is_causal: bool
    sliding_window: int
    dropout: float
    codes: Tensor | None = None
    scales: Tensor | None = None
    bounds: Tensor | None = None
    screening: int = 0
    screen_first: int = 0

    def without_screen(self) -> "Settings":
        """The same without screening: the ordinary way."""
        return Settings(*self[:12])
