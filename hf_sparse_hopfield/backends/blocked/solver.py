# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Newton's method for rows of scores; `functional.normalizers` explains the parametrisation."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ...functional import normalizers


# From this eps up, powers of `1 + eps y` are accurate in the plain form; below, they need log1p and expm1.
PLAIN_EPS = 0.05


@dataclass(frozen=True)
class Rows:
    """
    Rows to normalize.

    Args:
        scores (`torch.Tensor` of shape `(..., n)`): Scores; -inf is masked.
        eps (`float` or `torch.Tensor` of shape `(..., 1)`): alpha - 1.
        sink (`torch.Tensor` of shape `(..., 1)`, *optional*): One extra score of each row.
    """

    scores: Tensor
    eps: float | Tensor
    sink: Tensor | None = None


def _whole_power(base: Tensor, exponent: int) -> Tensor:
    """`base ** exponent` for an exponent of at least 1, by products: several times as fast as a general power."""
    while not exponent & 1:
        base, exponent = base * base, exponent >> 1
    result = base
    while exponent := exponent >> 1:
        base = base * base
        if exponent & 1:
            result = result * base
    return result


def _base(z: Tensor, t: Tensor, eps: float) -> Tensor:
    """`[1 + eps (z - t)]_+`."""
    return (z - (t - 1) if eps == 1.0 else torch.add(1 - eps * t, z, alpha=eps)).clamp_min_(0)


def powers(z: Tensor, t: Tensor, eps: float | Tensor) -> tuple[Tensor, Tensor]:
    """
    Weights `p = [1 + eps (z - t)]_+ ^ (1 / eps)` and their slopes `w = p^(1 - eps)`.

    Args:
        z (`torch.Tensor` of shape `(..., n)`): Scores relative to the maximum of their row; -inf gives zero.
        t (`torch.Tensor` of shape `(..., 1)`): Shift.
        eps (`float` or `torch.Tensor` of shape `(..., 1)`): alpha - 1.
    """
    if not isinstance(eps, float):
        # eps may be 0, and 0 times -inf is NaN
        return normalizers.powers((z - t).clamp_min_(torch.finfo(z.dtype).min), eps)
    if eps == 0.0:
        p = (z - t).exp_()
        return p, p
    if eps < PLAIN_EPS:
        return normalizers.powers(z - t, eps)
    base = _base(z, t, eps)
    exponent = 1 / eps - 1
    if exponent < 1e-12:
        return base, base.sign()
    if abs(exponent - round(exponent)) < 1e-12 and exponent < 10:
        w = _whole_power(base, round(exponent))
    else:
        w = base.log().mul_(exponent).exp_()
    return w * base, w


def weights(z: Tensor, t: Tensor, eps: float | Tensor) -> Tensor:
    """The weights of [`powers`] alone, which saves the slopes for alpha = 2."""
    return _base(z, t, eps) if isinstance(eps, float) and eps == 1.0 else powers(z, t, eps)[0]


def newton_step(total: Tensor, slope: Tensor, eps: float | Tensor) -> Tensor:
    """
    The step of Newton's method from a shift; not finite in a row without weight.

    Args:
        total (`torch.Tensor`): Sum of the weights of each row at the shift.
        slope (`torch.Tensor`): Sum of their slopes.
        eps (`float` or `torch.Tensor`): alpha - 1.
    """
    if isinstance(eps, float) and eps >= PLAIN_EPS:
        return (total - 1).div_(slope) if eps == 1.0 else (total - total.pow(1 - eps)).div_(slope * eps)
    log_total = total.log()
    return log_total * normalizers.ratio(torch.expm1, eps * log_total) * ((1 - eps) * log_total).exp() / slope


def find_shift(
    rows: Rows,
    low: Tensor,
    *,
    steps: int,
    accuracy: float | None = None,
    dim: int = -1,
    start: Tensor | None = None,
    share: float = 1.0,
    may_be_empty: bool = True,
) -> Tensor:
    """
    Find the shift of each row with Newton's method. It rises from any lower bound and never passes the root; from
    above the root, its first step falls below.

    Args:
        rows ([`Rows`]): Scores, and the sink, relative to the maximum of their row.
        low (`torch.Tensor` of shape `(..., 1)`): Lower bound of the shift.
        steps (`int`): Maximum number of steps.
        accuracy (`float`, *optional*):
            Stop once no row moves by more than this, relative to the largest possible shift. Without it, all steps are
            taken.
        dim (`int`, *optional*, defaults to -1): Dimension of the scores that is a row.
        start (`torch.Tensor` of shape `(..., 1)`, *optional*, defaults to `low`): Where to begin.
        share (`float`, *optional*, defaults to 1.0): Share of the row that the scores are a sample of.
        may_be_empty (`bool`, *optional*, defaults to `True`): Whether a row may hold only -inf.
    """
    z, eps, sink = rows.scores, rows.eps, rows.sink
    t = low if start is None else start
    if accuracy is not None:
        accuracy *= max(1.0, math.log(max(z.shape[dim] / share, 1)))  # no shift is larger than that of a flat row
    for _ in range(steps):
        p, w = powers(z, t, eps)
        total, slope = p.sum(dim, keepdim=True), w.sum(dim, keepdim=True)
        if share != 1.0:
            total, slope = total / share, slope / share
        if sink is not None:
            p, w = powers(sink, t, eps)
            total, slope = total + p, slope + w
        step = newton_step(total, slope, eps)
        # A slope of zero: the row is empty, or the start was far beyond the root.
        new = torch.where(slope > 0, step.add_(t), low) if may_be_empty else step.add_(t)
        if start is not None:
            new = torch.maximum(new, low)
        # Comparisons with NaN are false, so a row with NaN neither delays nor stops the others.
        settled = accuracy is not None and not ((new - t).abs_() > accuracy).any()
        t = new
        if settled:
            break
    return t
