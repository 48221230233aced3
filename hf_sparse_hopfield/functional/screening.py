# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
r"""Screening: bounds of the scores are enough to prove that most weights are zero.

**Statement.** Let `lower <= z <= upper` for every score of a row. A key with `(alpha - 1) upper <= tau(lower)` has weight
zero in `entmax(z)`, where `tau(lower)` is the threshold of the row `lower`, or of any part of that row.

**Proof.** The weights are `p_i = [(alpha - 1) z_i - tau]_+ ^ (1 / (alpha - 1))`, and `tau(z)` is the one number for which they
sum to 1. For a fixed `tau` the sum rises with every score and falls with `tau`, so `tau(z)` never falls when a score rises:
`tau(lower) <= tau(z)`. Leaving a key out is the same as lowering its score to -inf, so the threshold of a part of a row is at
most that of the row. Together, `(alpha - 1) z_i <= (alpha - 1) upper_i <= tau(lower) <= tau(z)`, and the weight of key i is
`[(alpha - 1) z_i - tau(z)]_+ = 0`. ∎

Then entmax of the remaining scores is entmax of the row: the others contribute nothing to the sum that defines `tau`.

**What scores may go through.** A map that never falls keeps bounds: `softcap * tanh(score / softcap)`, a positive beta, a bias.
A masked key has `lower = upper = -inf`, and so does one outside of a window or after a causal query. A sink is a score that
is known: `lower = upper`. Softmax (alpha = 1) gives every key weight; nothing can be excluded.
"""

import torch

from .normalizers import threshold


def may_have_weight(lower: torch.Tensor, upper: torch.Tensor, alpha: float | torch.Tensor = 2.0) -> torch.Tensor:
    """
    The keys that bounds of the scores do not exclude.

    Args:
        lower, upper (`torch.Tensor` of shape `(..., n)`): Bounds of the scores of rows; -inf for masked keys.
        alpha (`float` or `torch.Tensor` broadcastable to `(..., 1)`, *optional*, defaults to 2.0):
            Member of the entmax family, in [1, 2].

    Returns:
        `torch.BoolTensor` of shape `(..., n)`: `False` where the weight is zero for any scores within the bounds.

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield.functional import may_have_weight

    >>> scores = torch.tensor([3.0, 2.6, 1.9, 0.0])
    >>> may_have_weight(scores - 0.1, scores + 0.1)
    tensor([ True,  True, False, False])
    ```
    """
    lower, upper = lower.double(), upper.double()
    alpha = alpha.double() if isinstance(alpha, torch.Tensor) else alpha
    tau = threshold(lower, alpha)
    # `tau` is found to a few units of its last place
    slack = 1e-12 * (1 + tau.abs() + lower.amax(-1, keepdim=True).abs())
    return ~((alpha - 1) * upper <= tau - slack.nan_to_num(nan=0.0, posinf=0.0)) & (upper > -torch.inf)
