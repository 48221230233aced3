# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The entmax family in registers: weights, the step towards the threshold, and the derivative by alpha.

A row has the weights `p = [1 + eps (z - maximum - shift)]_+ ^ (1 / eps)` with `eps = alpha - 1`. The shift is the root of
`sum p = 1`; it is at least 0. `MEMBER` is 20 for sparsemax and 15 for entmax15, which need no logarithm, and 0 for any alpha.
"""

import triton
import triton.language as tl


@triton.jit
def powers(y, eps, MEMBER: tl.constexpr):
    """`p` and `w = p ^ (1 - eps)`, the derivative of `p`, for `y = z - maximum - shift`."""
    if MEMBER == 20:
        p = tl.maximum(1.0 + y, 0.0)
        w = tl.where(p > 0, 1.0, 0.0)
    elif MEMBER == 15:
        w = tl.maximum(1.0 + 0.5 * y, 0.0)
        p = w * w
    else:
        x = eps * y
        inside = x > -1.0
        x = tl.where(inside, x, 0.0)
        u = 1.0 + x
        same = u == 1.0
        # log(1 + x) / x in this form does not lose the digits of a small x
        ratio = tl.where(same, 1.0, tl.log(u) / tl.where(same, 1.0, u - 1.0))
        p = tl.where(inside, tl.exp(tl.where(inside, y, 0.0) * ratio), 0.0)
        w = tl.where(inside, p / u, 0.0)
    return p, w


@triton.jit
def expm1_ratio(x):
    """`(exp(x) - 1) / x`. By its series where the difference would lose digits; `by_alpha` divides what is lost by eps."""
    near = tl.abs(x) < 0.5
    series = 1.0 / 120 + x * (1.0 / 720 + x * (1.0 / 5040 + x * (1.0 / 40320)))
    series = 1.0 + x * (0.5 + x * (1.0 / 6 + x * (1.0 / 24 + x * series)))
    far = tl.where(near, 1.0, x)
    return tl.where(near, series, (tl.exp(far) - 1.0) / far)


@triton.jit
def raised(shift, total, slope, eps):
    """The next shift: a step of Newton on `(total ^ eps - 1) / eps`, which is convex, so that from below none passes the root."""
    log_total = tl.log(tl.maximum(total, 1e-30))
    step = log_total * expm1_ratio(eps * log_total) * tl.exp((1.0 - eps) * log_total) / tl.maximum(slope, 1e-30)
    return tl.where(slope > 0, shift + step, shift)


@triton.jit
def by_alpha(p, eps):
    """The derivative of `p` by alpha at a fixed shift: `p y^2 (x / (1 + x) - log(1 + x)) / x^2` with `x = eps y`."""
    inside = p > 0
    log_p = tl.log(tl.where(inside, p, 1.0))
    log_u = eps * log_p
    y = log_p * expm1_ratio(log_u)
    x = eps * y
    near = tl.abs(x) < 0.1
    series = 0.8 + x * (-5.0 / 6 + x * (6.0 / 7 + x * (-7.0 / 8)))
    series = p * y * y * (-0.5 + x * (2.0 / 3 + x * (-0.75 + x * series)))
    safe = tl.where(near, 1.0, eps)
    direct = (tl.exp((1.0 - eps) * log_p) * x - p * log_u) / (safe * safe)
    return tl.where(inside, tl.where(near, series, direct), 0.0)
