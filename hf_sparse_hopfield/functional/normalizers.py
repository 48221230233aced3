# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
r"""alpha-entmax, alpha in [1, 2]: softmax (1), entmax15 (1.5), sparsemax (2) and everything in between.

One parametrisation serves the whole family. With `eps = alpha - 1` and scores `z` shifted so that their maximum is 0,

    p_i = [1 + eps (z_i - t)]_+ ^ (1 / eps)        (exp(z_i - t) at eps = 0),

and the *shift* `t >= 0` makes the row sum to 1. It is well behaved as alpha -> 1, where the usual threshold
`tau = eps (t + max z) - 1` degenerates. `t` is found with Newton's method on `(S(t)^eps - 1) / eps`, with
`S = sum p`. This function is convex and decreasing (`S^eps` is a norm of the positive parts), so Newton's method rises
monotonically from `t = 0` to the root. Gradients are those of the exact solution; they do not go through the solver.
"""

import math
from collections.abc import Callable
from typing import Any

import torch

from ..checks import is_integer
from .checks import check_alpha
from .plain_torch import only_plain_torch


# Newton's method needs about 6 steps. This bound only ensures that no input can make it hang.
_MAX_NEWTON_STEPS = 100
# A recorded graph has a fixed number of steps, as it cannot see which one is the last. Each divides the product of the function
# and its slope by at least 4, so 24 suffice for 16384 keys in float32, however the scores lie. After sorting, 2 are plenty.
_RECORDED_NEWTON_STEPS = 24
_STEPS_AFTER_SORTING = 2


def ratio(function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """`function(x) / x`, for a function such as log1p or expm1 that is 0 with slope 1 at 0."""
    zero = x == 0
    x = x.masked_fill(zero, 1.0)
    return torch.where(zero, torch.ones((), dtype=x.dtype, device=x.device), function(x) / x)


def powers(y: torch.Tensor, eps: float | torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """
    Weights `p` and their slopes `w = p^(2 - alpha)`; zero where `1 + eps y <= 0`.

    Args:
        y (`torch.Tensor` of shape `(..., n)`): `z - t`.
        eps (`float` or `torch.Tensor` of shape `(..., 1)`): alpha - 1.
    """
    if isinstance(eps, float):
        if eps == 1.0:
            p = (1 + y).clamp_min(0)
            return p, (p > 0).to(y.dtype).masked_fill(p.isnan(), torch.nan)
        if eps == 0.5:
            w = (1 + 0.5 * y).clamp_min(0)
            return w * w, w
    x = eps * y
    inside = ~(x <= -1)  # NaN counts as inside, so that it spreads to its own row
    log_p = y * ratio(torch.log1p, torch.where(inside, x, torch.zeros_like(x)))
    p = torch.where(inside, log_p.exp(), torch.zeros_like(y))
    return p, torch.where(inside, ((1 - eps) * log_p).exp(), torch.zeros_like(y))


def _newton_step(
    z: torch.Tensor, invalid: torch.Tensor, t: torch.Tensor, eps: float | torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The step from `t`, and the weights and slopes there."""
    p, w = (x.masked_fill(invalid, 0) for x in powers(z - t, eps))
    log_total = p.sum(-1, keepdim=True).log()
    # (S^eps - 1) / eps / slope, in terms of `log S`, so that eps = 0 is not a special case
    step = log_total * ratio(torch.expm1, eps * log_total) * ((1 - eps) * log_total).exp()
    return step / w.sum(-1, keepdim=True), p, w


def _shift(
    z: torch.Tensor, invalid: torch.Tensor, empty: torch.Tensor, eps: float | torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The shift of each row, found step by step until no row moves, and the last weights and slopes."""
    t = torch.zeros_like(z[..., :1])
    rising = ~empty
    for _ in range(_MAX_NEWTON_STEPS):
        step, p, w = _newton_step(z, invalid, t, eps)
        # From below, steps rise to the root; one that does not is rounding. Each row stops independently.
        rising = rising & (step > 4 * torch.finfo(z.dtype).eps * t.clamp_min(1))
        if not rising.any():
            break
        t = torch.where(rising, t + step, t)
    return t, p, w


def _recorded_shift(
    z: torch.Tensor, invalid: torch.Tensor, empty: torch.Tensor, eps: float | torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """As `_shift`, in operators that do not depend on data, for a graph that is recorded."""
    if isinstance(eps, float) and eps in (0.5, 1.0):
        t, steps = _shift_by_sorting(z, invalid, eps), _STEPS_AFTER_SORTING
    else:
        t, steps = torch.zeros_like(z[..., :1]), _RECORDED_NEWTON_STEPS
    for _ in range(steps):
        step, p, w = _newton_step(z, invalid, t, eps)
        t = torch.where(empty, t, t + step)
    _, p, w = _newton_step(z, invalid, t, eps)
    return t, p, w


def _shift_by_sorting(z: torch.Tensor, invalid: torch.Tensor, eps: float) -> torch.Tensor:
    """The shift for sparsemax and entmax15 in closed form, up to rounding (Martins 2016, Peters 2019)."""
    # `1 + eps z`, largest first, cut off where no weight can be: that is where sums would lose their precision
    y = (1 + eps * z).masked_fill(invalid, 0).clamp_min(0).sort(dim=-1, descending=True).values
    count = torch.ones_like(y).cumsum(-1)
    mean = y.cumsum(-1) / count
    if eps == 1.0:
        thresholds = mean - 1 / count
    else:
        variance = (y * y).cumsum(-1) / count - mean * mean
        thresholds = mean - (1 / count - variance).clamp_min(0).sqrt()
    size = (thresholds < y).sum(-1, keepdim=True).clamp_min(1)
    return thresholds.gather(-1, size - 1).clamp_min(0) / eps


def _solve(scores: torch.Tensor, alpha: float | torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights and shift of rows of float32 or float64 scores; -inf is masked."""
    eps = alpha - 1
    limits = torch.finfo(scores.dtype)
    valid = scores != -torch.inf
    invalid = ~valid
    maximum = scores.amax(-1, keepdim=True)
    empty = maximum == -torch.inf
    z = (scores - maximum.masked_fill(empty, 0)).clamp_min(limits.min)  # -inf from overflow does not mask
    z = z.masked_fill(invalid, 0)
    if only_plain_torch():
        t, p, w = _recorded_shift(z, invalid, empty, eps)
    else:
        t, p, w = _shift(z, invalid, empty, eps)
    # Rounding of `t` shifts all weights of a row at once. Take the last Newton step on the weights to correct it.
    slope = w.sum(-1, keepdim=True)
    p = (p - w * (p.sum(-1, keepdim=True) - 1) / slope.masked_fill(empty, 1)).clamp_min(0)
    return p, t + maximum


@torch.library.custom_op("hf_sparse_hopfield::entmax_forward", mutates_args=())
def _entmax_operator(
    scores: torch.Tensor, alpha: torch.Tensor | None, alpha_value: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The solver as one operator: its loop depends on data, which torch.compile and torch.export cannot trace."""
    if scores.numel() == 0:
        return scores.new_zeros(scores.shape), scores.new_full((*scores.shape[:-1], 1), -torch.inf)
    # contiguous in and out: the strides must match those of the fake kernel
    weights, shift = _solve(scores.contiguous(), alpha_value if alpha is None else alpha)
    return weights.contiguous(), shift.contiguous()


@_entmax_operator.register_fake
def _(scores: torch.Tensor, alpha: torch.Tensor | None, alpha_value: float) -> tuple[torch.Tensor, torch.Tensor]:
    return scores.new_empty(scores.shape), scores.new_empty((*scores.shape[:-1], 1))


def _entmax_forward(
    scores: torch.Tensor, alpha: torch.Tensor | None, alpha_value: float
) -> tuple[torch.Tensor, torch.Tensor]:
    if only_plain_torch():
        return _solve(scores, alpha_value if alpha is None else alpha)
    return _entmax_operator(scores, alpha, alpha_value)


def _slopes(p: torch.Tensor, alpha: float | torch.Tensor) -> torch.Tensor:
    """`w = p^(2 - alpha)` on the support, zero elsewhere."""
    inside = p > 0
    if isinstance(alpha, float) and alpha == 2.0:
        return inside.to(p.dtype)
    log_p = torch.where(inside, p, torch.ones_like(p)).log()
    return torch.where(inside, ((2 - alpha) * log_p).exp(), torch.zeros_like(p))


def entmax_score_gradient(p: torch.Tensor, grad: torch.Tensor, alpha: float | torch.Tensor) -> torch.Tensor:
    """
    Gradient with respect to the scores: `w * (g - mean of g under w)`, with `w = p^(2 - alpha)` on the support.

    Args:
        p (`torch.Tensor` of shape `(..., n)`): Weights.
        grad (`torch.Tensor` of shape `(..., n)`): Gradient with respect to the weights.
        alpha (`float` or `torch.Tensor`): Member of the entmax family.
    """
    w = _slopes(p, alpha)
    total = w.sum(-1, keepdim=True)
    mean = (w * grad).sum(-1, keepdim=True) / total.masked_fill(total == 0, 1)
    return w * (grad - mean)


def _polynomial(x: torch.Tensor, coefficients: list[float]) -> torch.Tensor:
    result = torch.zeros_like(x)
    for coefficient in reversed(coefficients):
        result = result * x + coefficient
    return result


def expm1_ratio(x: torch.Tensor) -> torch.Tensor:
    """`expm1(x) / x` with accurate derivatives: near 0 it uses the series, where autograd would cancel."""
    near = x.abs() < 0.1
    far = x.masked_fill(near, 1.0)
    series = _polynomial(x.masked_fill(~near, 0.0), [1 / math.factorial(k) for k in range(1, 11)])
    return torch.where(near, series, far.expm1() / far)


def alpha_slope(p: torch.Tensor, eps: torch.Tensor) -> torch.Tensor:
    """
    Derivative of the weights with respect to alpha at a fixed shift.

    Args:
        p (`torch.Tensor` of shape `(..., n)`): Weights.
        eps (`torch.Tensor` broadcastable to `(..., 1)`): alpha - 1.
    """
    inside = p > 0
    log_p = torch.where(inside, p, torch.ones_like(p)).log()
    logarithm = eps * log_p  # of x + 1, with x = eps (z - t)
    y = log_p * expm1_ratio(logarithm)  # z - t, recovered from p
    x = eps * y
    # p y^2 (x / (1 + x) - log(1 + x)) / x^2. The bracket cancels near 0, and at the edge of the support 1 / (1 + x)
    # must not be computed from a rounded x.
    near = x.abs() < 0.03
    series = p * y * y * _polynomial(x.masked_fill(~near, 0.0), [(-1) ** (k - 1) * (k - 1) / k for k in range(2, 14)])
    safe_eps = torch.where(near, torch.ones_like(eps), eps)
    direct = (((1 - eps) * log_p).exp() * x - p * logarithm) / (safe_eps * safe_eps)
    return torch.where(inside, torch.where(near, series, direct), torch.zeros_like(p))


def entmax_alpha_gradient(p: torch.Tensor, grad: torch.Tensor, alpha: torch.Tensor) -> torch.Tensor:
    """
    Gradient with respect to alpha of each row, shape `(..., 1)`, including its limits at alpha = 1 and 2.

    Args:
        p (`torch.Tensor` of shape `(..., n)`): Weights.
        grad (`torch.Tensor` of shape `(..., n)`): Gradient with respect to the weights.
        alpha (`torch.Tensor` broadcastable to `(..., 1)`): Member of the entmax family.
    """
    w = _slopes(p, alpha)
    direct = alpha_slope(p, alpha - 1)
    total = w.sum(-1, keepdim=True)
    shift = direct.sum(-1, keepdim=True) / total.masked_fill(total == 0, 1)
    return ((direct - w * shift) * grad).sum(-1, keepdim=True)


class _Entmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: torch.Tensor, alpha: torch.Tensor | None, alpha_value: float) -> torch.Tensor:
        weights, _ = _entmax_forward(scores, alpha, alpha_value)
        ctx.save_for_backward(weights, alpha)
        ctx.alpha_value = alpha_value
        return weights

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None, None]:
        weights, alpha = ctx.saved_tensors
        member = ctx.alpha_value if alpha is None else alpha
        grad_scores = entmax_score_gradient(weights, grad, member) if ctx.needs_input_grad[0] else None
        grad_alpha = None
        if ctx.needs_input_grad[1]:
            grad_alpha = entmax_alpha_gradient(weights, grad, alpha).sum_to_size(alpha.shape)
        return grad_scores, grad_alpha, None


def _prepare(
    scores: torch.Tensor, alpha: float | torch.Tensor, dim: int, mask: torch.Tensor | None
) -> tuple[torch.Tensor, float | torch.Tensor]:
    """Checked scores with `dim` last, in float32 or better, -inf where masked; alpha to match."""
    if not isinstance(scores, torch.Tensor) or not scores.is_floating_point():
        raise TypeError(
            f"scores must be a floating point tensor, got {getattr(scores, 'dtype', type(scores).__name__)}."
        )
    if scores.ndim == 0:
        raise ValueError("scores must have at least one dimension, got a scalar.")
    if not is_integer(dim) or not -scores.ndim <= dim < scores.ndim:
        raise ValueError(f"dim={dim!r} is not a dimension of scores of shape {tuple(scores.shape)}.")
    check_alpha(alpha)
    if mask is not None:
        if not isinstance(mask, torch.Tensor) or mask.dtype != torch.bool:
            given = getattr(mask, "dtype", type(mask).__name__)
            raise TypeError(f"mask must be a boolean tensor (True = may be chosen), got {given}. Use `mask.bool()`.")
        try:
            mask = mask.expand(scores.shape)
        except RuntimeError as error:
            raise ValueError(
                f"mask of shape {tuple(mask.shape)} does not broadcast to scores of shape {tuple(scores.shape)}."
            ) from error
        scores = scores.masked_fill(~mask, -torch.inf)
    compute = torch.promote_types(scores.dtype, torch.float32)
    scores = scores.to(compute).movedim(dim, -1)
    if isinstance(alpha, torch.Tensor):
        alpha = alpha.to(device=scores.device, dtype=compute)
        alpha = alpha.reshape((1,) * (scores.ndim - alpha.ndim) + alpha.shape)
        row_shape = list(scores.movedim(-1, dim).shape)
        row_shape[dim] = 1
        if alpha.ndim != scores.ndim or any(a not in (1, s) for a, s in zip(alpha.shape, row_shape, strict=True)):
            raise ValueError(
                f"alpha of shape {tuple(alpha.shape)} does not broadcast to {tuple(row_shape)}: one alpha per row "
                f"along dim={dim} of the scores."
            )
        alpha = alpha.movedim(dim, -1)
    else:
        alpha = float(alpha)
    return scores, alpha


def _prepare_without_gradient(
    scores: torch.Tensor, alpha: float | torch.Tensor, dim: int, mask: torch.Tensor | None
) -> tuple[torch.Tensor, float | torch.Tensor]:
    scores, alpha = _prepare(scores, alpha, dim, mask)
    return scores.detach(), alpha.detach() if isinstance(alpha, torch.Tensor) else alpha


def _split(alpha: float | torch.Tensor) -> tuple[torch.Tensor | None, float]:
    return (alpha, 0.0) if isinstance(alpha, torch.Tensor) else (None, alpha)


def entmax(
    scores: torch.Tensor, alpha: float | torch.Tensor = 2.0, dim: int = -1, mask: torch.Tensor | None = None
) -> torch.Tensor:
    """
    alpha-entmax: the point of the simplex that maximises `p @ scores` plus the Tsallis alpha-entropy of `p`.

    Args:
        scores (`torch.Tensor`):
            Scores of any shape; -inf gets weight 0. float16 and bfloat16 are computed in float32 and rounded once.
        alpha (`float` or `torch.Tensor`, *optional*, defaults to 2.0):
            Member of the family, in [1, 2]: 1 is softmax, 1.5 entmax15, 2 sparsemax. A tensor broadcasts to `scores`
            with size 1 along `dim` (one alpha per row, head, batch entry, ...) and receives a gradient.
        dim (`int`, *optional*, defaults to -1): Dimension that sums to 1.
        mask (`torch.BoolTensor` broadcastable to `scores`, *optional*): `True` where an entry may get weight.

    Returns:
        `torch.Tensor`: Weights with the shape and dtype of `scores`. A fully masked row is zero. NaN spreads to its
        own row only.

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield import entmax

    >>> entmax(torch.tensor([1.0, 0.5, -1.0]))
    tensor([0.7500, 0.2500, 0.0000])
    >>> entmax(torch.tensor([1.0, 0.5, -1.0]), alpha=1.0)
    tensor([0.5741, 0.3482, 0.0777])
    ```
    """
    prepared, alpha = _prepare(scores, alpha, dim, mask)
    if isinstance(alpha, float) and alpha == 1.0:
        empty = (prepared == -torch.inf).all(-1, keepdim=True)
        weights = prepared.masked_fill(empty, 0).softmax(-1).masked_fill(empty, 0)
    else:
        weights = _Entmax.apply(prepared, *_split(alpha))
    return weights.movedim(-1, dim).to(scores.dtype)


def sparsemax(scores: torch.Tensor, dim: int = -1, mask: torch.Tensor | None = None) -> torch.Tensor:
    """
    Sparsemax: the Euclidean projection of `scores` onto the simplex; [`entmax`] with alpha = 2.

    Args:
        scores (`torch.Tensor`): Scores of any shape.
        dim (`int`, *optional*, defaults to -1): Dimension that sums to 1.
        mask (`torch.BoolTensor` broadcastable to `scores`, *optional*): `True` where an entry may get weight.

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield import sparsemax

    >>> sparsemax(torch.tensor([[0.1, 0.2, 3.0], [0.0, 0.0, 0.0]]))
    tensor([[0.0000, 0.0000, 1.0000],
            [0.3333, 0.3333, 0.3333]])
    ```
    """
    return entmax(scores, 2.0, dim, mask)


def threshold(
    scores: torch.Tensor, alpha: float | torch.Tensor = 2.0, dim: int = -1, mask: torch.Tensor | None = None
) -> torch.Tensor:
    """
    The `tau` of `entmax(z) = [(alpha - 1) z - tau]_+ ^ (1 / (alpha - 1))`, without gradient.

    Args:
        scores, alpha, dim, mask: As for [`entmax`].

    Returns:
        `torch.Tensor`: `scores` with size 1 along `dim`, in float32 or better. -inf for alpha = 1 (softmax cuts
        nothing off) and +inf for a fully masked row (everything is cut off).

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield.functional import threshold

    >>> threshold(torch.tensor([1.0, 0.5, -1.0]))
    tensor([0.2500])
    ```
    """
    scores, alpha = _prepare_without_gradient(scores, alpha, dim, mask)
    shift = _entmax_forward(scores, *_split(alpha))[1]
    eps = alpha - 1
    tau = eps * shift - 1
    softmax = eps == 0 if isinstance(eps, torch.Tensor) else torch.full_like(shift, eps == 0, dtype=torch.bool)
    tau = torch.where(softmax, torch.full_like(tau, -torch.inf), tau)
    return torch.where(shift == -torch.inf, torch.full_like(tau, torch.inf), tau).movedim(-1, dim)


def support(
    scores: torch.Tensor, alpha: float | torch.Tensor = 2.0, dim: int = -1, mask: torch.Tensor | None = None
) -> torch.Tensor:
    """
    Where [`entmax`] is above zero.

    Args:
        scores, alpha, dim, mask: As for [`entmax`].

    Returns:
        `torch.BoolTensor`: Shape of `scores`.

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield.functional import support

    >>> support(torch.tensor([1.0, 0.5, -1.0]))
    tensor([ True,  True, False])
    ```
    """
    scores, alpha = _prepare_without_gradient(scores, alpha, dim, mask)
    return (_entmax_forward(scores, *_split(alpha))[0] > 0).movedim(-1, dim)


def support_size(
    scores: torch.Tensor, alpha: float | torch.Tensor = 2.0, dim: int = -1, mask: torch.Tensor | None = None
) -> torch.Tensor:
    """
    Number of entries of each row that get weight from [`entmax`] (kappa in the paper).

    Args:
        scores, alpha, dim, mask: As for [`entmax`].

    Returns:
        `torch.LongTensor`: `scores` without `dim`.

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield.functional import support_size

    >>> support_size(torch.tensor([[1.0, 0.5, -1.0], [3.0, 0.0, 0.0]]))
    tensor([2, 1])
    ```
    """
    return support(scores, alpha, dim, mask).sum(dim)
