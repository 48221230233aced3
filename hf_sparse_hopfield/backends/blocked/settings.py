# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The settings of a call, in the order in which the operators take them."""

from typing import NamedTuple

from torch import Tensor


# The same fields in the language of operator schemas.
SCHEMA = (
    "float scaling, float factor, Tensor? beta, Tensor? alpha, float alpha_value, Tensor? mask, Tensor? bias, "
    "Tensor? sinks, bool is_causal, int window, float softcap, float dropout, Tensor? seed"
)


class Settings(NamedTuple):
    """
    The arguments of the operators after query, key and value.

    Args:
        scaling (`float`): Factor on the scores.
        factor (`float`): beta if it is a number, else 1.
        beta (`torch.Tensor` of shape `(batch, heads, queries, 1)`, *optional*): beta of each row.
        alpha (`torch.Tensor` of shape `(batch, heads, queries, 1)`, *optional*): alpha of each row.
        alpha_value (`float`): alpha if it is a number, else 0.
        mask, bias (`torch.Tensor` with four dimensions, *optional*): As in `RetrievalProblem`.
        sinks (`torch.Tensor` of shape `(heads,)`, *optional*): Logit of one extra column.
        is_causal (`bool`): As in `RetrievalProblem`.
        window (`int`): Size of the sliding window; 0 means none.
        softcap (`float`): As in `RetrievalProblem`; 0 means none.
        dropout (`float`): Probability of dropping a weight.
        seed (`torch.Tensor`, *optional*): Seed of the dropout.
    """

    scaling: float
    factor: float
    beta: Tensor | None
    alpha: Tensor | None
    alpha_value: float
    mask: Tensor | None
    bias: Tensor | None
    sinks: Tensor | None
    is_causal: bool
    window: int
    softcap: float
    dropout: float
    seed: Tensor | None
