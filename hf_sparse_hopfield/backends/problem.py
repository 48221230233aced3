# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The input and the result of a backend: one retrieval."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch


if TYPE_CHECKING:
    from .key_screen import KeyScreen


@dataclass(eq=False, slots=True)
class RetrievalProblem:
    """
    One retrieval. [`~hf_sparse_hopfield.retrieval.canonical`] checks it and reduces it to the few forms described
    here.

    Args:
        query (`torch.Tensor` of shape `(batch, heads, queries, head_dim)`): The states.
        key (`torch.Tensor` of shape `(batch, kv_heads, keys, head_dim)`):
            The stored patterns; `heads` is a multiple of `kv_heads`.
        value (`torch.Tensor` of shape `(batch, kv_heads, keys, value_dim)`): The patterns to read out.
        scaling (`float`, *optional*):
            The model's own factor on `query @ key.T`. `canonical` fills in the default, so a backend always finds a
            number.
        beta (`float` or `torch.Tensor` broadcastable to `(batch, heads, queries, 1)`): Multiplier on `scaling`, > 0.
        alpha (`float` or `torch.Tensor` broadcastable to `(batch, heads, queries, 1)`):
            Member of the entmax family, in [1, 2].
        steps (`int`): Number of evaluations of the normalizer, including the read-out.
        tolerance (`float`): A row whose state moves by less (Euclidean norm) is no longer updated.
        mask (`torch.BoolTensor` with four dimensions, broadcastable to `(batch, heads, queries, keys)`, *optional*):
            `True` where a query may attend.
        bias (`torch.Tensor` with four dimensions, broadcastable to `(batch, heads, queries, keys)`, *optional*):
            Added to the scaled scores; -inf masks.
        is_causal (`bool`): Query `i` sees key `j` only if `j <= i + keys - queries` (aligned bottom right).
        sliding_window (`int`, *optional*): With `is_causal`, a query sees only its last `sliding_window` keys.
        softcap (`float`, *optional*): Scores become `softcap * tanh(score / softcap)` before `beta` and `bias`.
        sinks (`torch.Tensor` of shape `(heads,)`, *optional*):
            Logits of one extra column whose key and value are zero.
        dropout (`float`): Probability of dropping a weight of the read-out.
        return_weights (`bool`): Whether the caller wants the weights of the read-out.
        return_trace (`bool`): Whether the caller wants the steps used, the states and the energies.
        places (`torch.LongTensor` of shape `(batch or 1, keys)`, *optional*):
            The row of `key` and `value` at which each key is; the batch of these may then be 1. By default all rows, in order.
        screen ([`KeyScreen`] or `bool`):
            The int8 copy of `key`, or whether one may be made. A backend that does not screen ignores it.
        segments (`tuple[torch.IntTensor, torch.IntTensor]` of shapes `(batch or 1, queries)` and `(batch or 1, keys)`, *optional*):
            Numbers of the sequences that share a row: a query sees only keys with its own number. A backend that does not
            read them finds them in `mask`.
        length_power (`float` or `torch.Tensor` broadcastable to `(batch, heads, queries, 1)`):
            beta is multiplied by `(visible keys / 256) ** length_power` in each row. `with_row_beta` puts it into `beta`, so a
            backend always finds 0.

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield.backends import RetrievalProblem, select_backend

    >>> problem = RetrievalProblem(*torch.randn(3, 1, 2, 5, 4), scaling=0.5)
    >>> select_backend(problem, "reference")[0].run(problem).output.shape
    torch.Size([1, 2, 5, 4])
    ```
    """

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    scaling: float = None  # type: ignore[assignment]  # `None` only until `canonical` fills it in
    beta: float | torch.Tensor = 1.0
    alpha: float | torch.Tensor = 2.0
    steps: int = 1
    tolerance: float = 0.0
    mask: torch.Tensor | None = None
    bias: torch.Tensor | None = None
    is_causal: bool = False
    sliding_window: int | None = None
    softcap: float | None = None
    sinks: torch.Tensor | None = None
    dropout: float = 0.0
    return_weights: bool = False
    return_trace: bool = False
    places: torch.Tensor | None = None
    screen: "KeyScreen | bool" = True
    segments: tuple[torch.Tensor, torch.Tensor] | None = None
    length_power: float | torch.Tensor = 0.0


@dataclass
class RetrievalResult:
    """
    The result of a backend.

    Args:
        output (`torch.Tensor` of shape `(batch, heads, queries, value_dim)`): The read-out, in the dtype of `value`.
        weights (`torch.Tensor` of shape `(batch, heads, queries, keys)`, *optional*):
            Read-out weights before dropout (without the column of the sinks), in the dtype of `query`.
        steps_used (`torch.LongTensor` of shape `(batch, heads, queries)`, *optional*):
            Number of evaluations of the normalizer.
        states (`torch.Tensor` of shape `(steps, batch, heads, queries, head_dim)`, *optional*):
            State before each evaluation.
        energies (`torch.Tensor` of shape `(steps, batch, heads, queries)`, *optional*):
            Energy of each state; +inf for a row with nothing to attend to.

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield import retrieve

    >>> result = retrieve(*torch.randn(3, 1, 2, 5, 4), steps=3, return_trace=True)
    >>> result.states.shape, result.energies.shape
    (torch.Size([3, 1, 2, 5, 4]), torch.Size([3, 1, 2, 5]))
    ```
    """

    output: torch.Tensor
    weights: torch.Tensor | None = None
    steps_used: torch.Tensor | None = None
    states: torch.Tensor | None = None
    energies: torch.Tensor | None = None
