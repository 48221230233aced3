# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The settings of a call, in the order in which the operators take them."""

from typing import NamedTuple

from torch import Tensor


# The same fields in the language of operator schemas.
SCHEMA = (
    "float scaling, float beta_value, Tensor? beta, float alpha_value, Tensor? alpha, Tensor? mask, Tensor? bias, Tensor? sinks, "
    "Tensor? query_segments, Tensor? key_segments, bool is_causal, int window, float softcap, float dropout, Tensor? seed"
)


class Settings(NamedTuple):
    """
    The arguments of the operators after query, key and value.

    Args:
        scaling (`float`): Factor on the scores.
        beta_value, alpha_value (`float`): beta and alpha where they are numbers.
        beta, alpha (`torch.Tensor` broadcastable to `(batch, heads, queries, 1)`, *optional*): Where they are tensors.
        mask, bias (`torch.Tensor` with four dimensions, *optional*): As in `RetrievalProblem`.
        sinks (`torch.Tensor` of shape `(heads,)`, *optional*): Logit of one extra column.
        query_segments, key_segments (`torch.Tensor` of shape `(batch or 1, length)`, *optional*):
            A query sees only keys with its own number.
        is_causal (`bool`): As in `RetrievalProblem`.
        window (`int`): Size of the sliding window; 0 means none.
        softcap (`float`): As in `RetrievalProblem`; 0 means none.
        dropout (`float`): Probability of dropping a weight.
        seed (`torch.Tensor`, *optional*): Seed of the dropout.
    """

    scaling: float
    beta_value: float
    beta: Tensor | None
    alpha_value: float
    alpha: Tensor | None
    mask: Tensor | None
    bias: Tensor | None
    sinks: Tensor | None
    query_segments: Tensor | None
    key_segments: Tensor | None
    is_causal: bool
    window: int
    softcap: float
    dropout: float
    seed: Tensor | None

    @property
    def member(self) -> int:
        """The member of the family that the kernels are compiled for: 20, 15, or 0 for any."""
        return 0 if self.alpha is not None else {2.0: 20, 1.5: 15}.get(self.alpha_value, 0)

    @property
    def work(self) -> str:
        """What the call asks of the registers: `"cheap"`, `"general"` or `"heavy"`."""
        by_row = self.mask is not None and self.mask.shape[2] > 1
        if by_row or self.bias is not None or self.key_segments is not None or self.softcap or self.dropout:
            return "heavy"
        return "cheap" if self.member else "general"
