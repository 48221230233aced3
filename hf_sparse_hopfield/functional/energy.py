# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Conjugates and energies, and correct statements about separation, retrieval error and capacity.

`memories` hold one pattern per row, shape `(..., M, d)`; a `state` has shape `(..., d)`.
"""

import math

import torch

from .checks import check_beta
from .normalizers import entmax, expm1_ratio


def _check_patterns(name: str, tensor: torch.Tensor, least: int) -> None:
    if not isinstance(tensor, torch.Tensor) or not tensor.is_floating_point():
        given = tensor.dtype if isinstance(tensor, torch.Tensor) else type(tensor).__name__
        raise TypeError(f"{name} must be a floating point tensor, got {given}.")
    if tensor.ndim < least:
        raise ValueError(f"{name} must have at least {least} dimensions, got shape {tuple(tensor.shape)}.")


def _prepare(
    state: torch.Tensor, memories: torch.Tensor, beta: float | torch.Tensor, alpha: float | torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, float | torch.Tensor, float | torch.Tensor]:
    """Checked state and memories in float32 or better; beta and alpha with one extra dimension, to act on scores."""
    _check_patterns("state", state, 1)
    _check_patterns("memories", memories, 2)
    check_beta(beta)
    if state.shape[-1] != memories.shape[-1]:
        raise ValueError(
            f"state of shape {tuple(state.shape)} and memories of shape {tuple(memories.shape)} must agree in their "
            "last dimension: memories hold one pattern per row, (..., M, d)."
        )
    try:
        batch = torch.broadcast_shapes(state.shape[:-1], memories.shape[:-2])
    except RuntimeError as error:
        raise ValueError(
            f"state of shape {tuple(state.shape)} and memories of shape {tuple(memories.shape)} do not broadcast: "
            "(..., d) and (..., M, d)."
        ) from error
    dtype = torch.promote_types(torch.promote_types(state.dtype, memories.dtype), torch.float32)
    return (
        state.to(dtype),
        memories.to(dtype),
        _setting_of_rows("beta", beta, batch, dtype),
        _setting_of_rows("alpha", alpha, batch, dtype),
    )


def _setting_of_rows(
    name: str, setting: float | torch.Tensor, batch: torch.Size, dtype: torch.dtype
) -> float | torch.Tensor:
    """A number, or a checked tensor with one extra dimension, to act on scores."""
    if not isinstance(setting, torch.Tensor):
        return setting
    pairs = zip(reversed(setting.shape), reversed(batch), strict=False)
    if setting.ndim > len(batch) or any(s not in (1, n) for s, n in pairs):
        raise ValueError(
            f"{name} of shape {tuple(setting.shape)} does not broadcast to the states' shape {tuple(batch)}."
        )
    return setting.to(dtype).unsqueeze(-1)


def _scores(state: torch.Tensor, memories: torch.Tensor, beta: float | torch.Tensor) -> torch.Tensor:
    """`beta Xi^T x`, in full precision even under autocast."""
    with torch.autocast(state.device.type, enabled=False):
        return beta * (memories @ state.unsqueeze(-1)).squeeze(-1)


def conjugate(
    scores: torch.Tensor, alpha: float | torch.Tensor = 2.0, dim: int = -1, mask: torch.Tensor | None = None
) -> torch.Tensor:
    """
    The convex conjugate `Psi*(z) = max over the simplex of p @ z - Psi(p)` of the negative Tsallis alpha-entropy
    `Psi(p) = sum(p^alpha - p) / (alpha (alpha - 1))`; its gradient is [`entmax`].

    alpha = 2 is the paper's Gini regulariser, alpha = 1 gives log-sum-exp.

    Args:
        scores (`torch.Tensor`): Scores of any shape.
        alpha (`float` or `torch.Tensor`, *optional*, defaults to 2.0): Member of the entmax family, as for [`entmax`].
        dim (`int`, *optional*, defaults to -1): Dimension to reduce.
        mask (`torch.BoolTensor` broadcastable to `scores`, *optional*): `True` where an entry may get weight.

    Returns:
        `torch.Tensor`: `scores` without `dim`, in float32 or better; -inf for a fully masked row.

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield import conjugate

    >>> conjugate(torch.tensor([1.0, 0.5, -1.0]))
    tensor(1.0625)
    >>> conjugate(torch.tensor([1.0, 0.5, -1.0]), alpha=1.0), torch.tensor([1.0, 0.5, -1.0]).logsumexp(-1)
    (tensor(1.5550), tensor(1.5550))
    ```
    """
    _check_patterns("scores", scores, 1)
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    p = entmax(scores, alpha, dim, mask)
    inside = p > 0
    log_p = torch.where(inside, p, torch.ones_like(p)).log()
    # (p^alpha - p) / (alpha (alpha - 1)) = p log p * expm1(x) / x / alpha, x = (alpha - 1) log p: exact at alpha = 1
    psi = p * log_p * expm1_ratio((alpha - 1) * log_p) / alpha
    linear = p * torch.where(inside, scores, torch.zeros_like(scores))
    value = (linear - psi).sum(dim)
    empty = ~(inside | p.isnan()).any(dim)
    return value.masked_fill(empty, -torch.inf)


def energy(
    state: torch.Tensor, memories: torch.Tensor, beta: float | torch.Tensor = 1.0, alpha: float | torch.Tensor = 2.0
) -> torch.Tensor:
    """
    Energy of the modern Hopfield model, `H(x) = -Psi*(beta Xi^T x) / beta + |x|^2 / 2`.

    The paper prints it without `1 / beta`. Retrieval is then not its descent step, and the energy can rise. With the
    factor, `H` never rises along `x <- T(x)`, for every alpha in [1, 2] and every beta > 0.

    Args:
        state (`torch.Tensor` of shape `(..., d)`): States.
        memories (`torch.Tensor` of shape `(..., M, d)`): Stored patterns, one per row.
        beta (`float` or `torch.Tensor` broadcastable to `(...)`, *optional*, defaults to 1.0): Inverse temperature.
        alpha (`float` or `torch.Tensor` broadcastable to `(...)`, *optional*, defaults to 2.0):
            Member of the entmax family.

    Returns:
        `torch.Tensor` of shape `(...)`, in float32 or better.

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield import energy

    >>> energy(torch.tensor([1.0, 0.0]), torch.eye(2), beta=2.0)
    tensor(-0.5000)
    ```
    """
    state, memories, beta, alpha = _prepare(state, memories, beta, alpha)
    inverse_beta = 1 / beta.squeeze(-1) if isinstance(beta, torch.Tensor) else 1 / beta
    return state.square().sum(-1) / 2 - inverse_beta * conjugate(_scores(state, memories, beta), alpha)


def update(
    state: torch.Tensor, memories: torch.Tensor, beta: float | torch.Tensor = 1.0, alpha: float | torch.Tensor = 2.0
) -> torch.Tensor:
    """
    One retrieval step, `T(x) = Xi entmax(beta Xi^T x)`.

    Args:
        state, memories, beta, alpha: As for [`energy`].

    Returns:
        `torch.Tensor` of shape `(..., d)`, in the dtype of `state`.

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield.functional import update

    >>> update(torch.tensor([0.9, 0.1]), torch.eye(2), beta=2.0)
    tensor([1., 0.])
    ```
    """
    dtype = state.dtype
    state, memories, beta, alpha = _prepare(state, memories, beta, alpha)
    weights = entmax(_scores(state, memories, beta), alpha)
    with torch.autocast(state.device.type, enabled=False):
        return (weights.unsqueeze(-2) @ memories).squeeze(-2).to(dtype)


def energy_gradient(
    state: torch.Tensor, memories: torch.Tensor, beta: float | torch.Tensor = 1.0, alpha: float | torch.Tensor = 2.0
) -> torch.Tensor:
    """
    Gradient of [`energy`] with respect to the state, `x - T(x)`: zero exactly at the fixed points of retrieval.

    Args:
        state, memories, beta, alpha: As for [`energy`].

    Returns:
        `torch.Tensor` of shape `(..., d)`.

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield.functional import energy_gradient

    >>> energy_gradient(torch.tensor([1.0, 0.0]), torch.eye(2), beta=2.0)
    tensor([0., 0.])
    ```
    """
    return state - update(state, memories, beta, alpha)


def _several(memories: torch.Tensor) -> torch.Tensor:
    """At least two memories, in float32 or better."""
    _check_patterns("memories", memories, 2)
    if memories.shape[-2] < 2:
        raise ValueError(f"memories must hold at least two patterns, (..., M, d), got shape {tuple(memories.shape)}.")
    return memories.to(torch.promote_types(memories.dtype, torch.float32))


def separation(memories: torch.Tensor) -> torch.Tensor:
    """
    Separation of every pattern from the others, `Delta_mu = <xi_mu, xi_mu> - max over nu != mu of <xi_mu, xi_nu>`.

    The paper uses the same definition (after Ramsauer et al.). It is signed: a pattern has negative separation if its
    inner product with another exceeds its own squared norm. With `beta * Delta_mu >= 1`, sparsemax retrieval of
    `xi_mu` from itself is one-hot, hence exact: the condition is on the two largest scores, which are `Delta_mu`
    apart.

    Args:
        memories (`torch.Tensor` of shape `(..., M, d)`): Stored patterns, at least two.

    Returns:
        `torch.Tensor` of shape `(..., M)`.

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield.functional import separation

    >>> separation(torch.tensor([[2.0, 0.0], [0.0, 1.0]]))
    tensor([4., 1.])
    ```
    """
    memories = _several(memories)
    with torch.autocast(memories.device.type, enabled=False):
        products = memories @ memories.transpose(-1, -2)
    own = products.diagonal(dim1=-2, dim2=-1)
    same = torch.eye(memories.shape[-2], dtype=torch.bool, device=memories.device)
    return own - products.masked_fill(same, -torch.inf).amax(-1)


def sphere_radius(memories: torch.Tensor) -> torch.Tensor:
    """
    Radius `R = min |xi_mu - xi_nu| / 2` of the largest equal, disjoint spheres around the patterns.

    The paper (definition 2.1) calls a pattern stored if its sphere contains one fixed point to which all states of
    the sphere converge. The radius is correct. The claim that the sparse error never exceeds the dense one in such a
    sphere is not: use [`retrieval_errors`] to measure both.

    Args:
        memories (`torch.Tensor` of shape `(..., M, d)`): Stored patterns, at least two.

    Returns:
        `torch.Tensor` of shape `(...)`.

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield.functional import sphere_radius

    >>> sphere_radius(torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
    tensor(2.5000)
    ```
    """
    memories = _several(memories)
    difference = memories.unsqueeze(-2) - memories.unsqueeze(-3)
    distances = difference.square().sum(-1)
    same = torch.eye(memories.shape[-2], dtype=torch.bool, device=memories.device)
    return distances.masked_fill(same, torch.inf).amin((-2, -1)).sqrt() / 2


def retrieval_errors(
    state: torch.Tensor, memories: torch.Tensor, target: torch.Tensor, beta: float | torch.Tensor = 1.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """
    Measured one-step errors `|T(x) - xi_mu|`, sparse (alpha = 2) and dense (alpha = 1).

    The paper's theorem 2.2 says that the sparse error is at most the dense one for every state in the sphere of
    `xi_mu`. This is false in general (random Gaussian patterns give counterexamples), and its bound by kappa is at
    least `m (1 + sqrt d)`, larger than any possible error. What holds: if the pattern has the largest score, with a
    scaled gap `beta * (largest - second largest score) >= 1`, the sparse error is exactly 0, while the dense one
    never is.

    Args:
        state (`torch.Tensor` of shape `(..., d)`): States.
        memories (`torch.Tensor` of shape `(..., M, d)`): Stored patterns, one per row.
        target (`torch.Tensor` of shape `(..., d)`): The pattern to retrieve.
        beta (`float` or `torch.Tensor` broadcastable to `(...)`, *optional*, defaults to 1.0): Inverse temperature.

    Returns:
        `tuple[torch.Tensor, torch.Tensor]`: Sparse and dense error, each of shape `(...)`.

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield.functional import retrieval_errors

    >>> sparse, dense = retrieval_errors(torch.tensor([0.9, 0.1]), torch.eye(2), torch.tensor([1.0, 0.0]), beta=2.0)
    >>> sparse, dense > 0.2
    (tensor(0.), tensor(True))
    ```
    """
    sparse, dense = (update(state, memories, beta, alpha) for alpha in (2.0, 1.0))
    return (sparse - target).norm(dim=-1), (dense - target).norm(dim=-1)


def capacity_constant(
    dimension: int, radius_factor: float, beta: float = 1.0, failure_probability: float = 0.001
) -> float:
    """
    The constant `c` of Ramsauer et al.'s bound (their theorem 3): with probability `1 - p`, at least
    `sqrt(p) * c ** ((d - 1) / 4)` random patterns on the sphere of radius `K sqrt(d - 1)` can be stored.

    `c = b / W0(exp(a + ln b))` with `a = 2 / (d - 1) (1 + ln(2 beta K^2 p (d - 1)))`, `b = 2 K^2 beta / 5` and `W0`
    the upper branch of the Lambert function. The paper's sparse counterpart (lemma 2.1) takes the logarithm of
    `sqrt(p) - 1 < 0`, and its asymptotic comparison is reversed. This package therefore provides the dense bound and
    **measures** the sparse capacity. (Ramsauer et al. print 1.3718 for d = 75, K = 1: truncated, not rounded.)

    Args:
        dimension (`int`): `d`, at least 2.
        radius_factor (`float`): `K` > 0.
        beta (`float`, *optional*, defaults to 1.0): Inverse temperature.
        failure_probability (`float`, *optional*, defaults to 0.001): `p`, between 0 and 1.

    Returns:
        `float`: The constant `c`.

    Example:

    ```python
    >>> from hf_sparse_hopfield.functional import capacity_constant

    >>> round(capacity_constant(20, 3.0), 4), round(capacity_constant(75, 1.0), 4)
    (3.1546, 1.3719)
    ```
    """
    if dimension < 2:
        raise ValueError(f"dimension must be at least 2, got {dimension}.")
    if not radius_factor > 0:
        raise ValueError(f"radius_factor must be positive, got {radius_factor}.")
    check_beta(beta)
    if not 0 < failure_probability < 1:
        raise ValueError(f"failure_probability must be between 0 and 1, got {failure_probability}.")
    squared = radius_factor * radius_factor
    a = 2 / (dimension - 1) * (1 + math.log(2 * beta * squared * failure_probability * (dimension - 1)))
    b = 2 * squared * beta / 5
    logarithm = a + math.log(b)
    # W0(exp(v)) solves w + log w = v. Newton's method in log w stays in the domain and converges quadratically.
    log_w = math.log(logarithm) if logarithm > 1 else logarithm - math.exp(min(logarithm, 0.0))
    for _ in range(100):
        w = math.exp(log_w)
        step = (w + log_w - logarithm) / (w + 1)
        log_w -= step
        if abs(step) < 1e-15 * max(1.0, abs(log_w)):
            break
    return b / math.exp(log_w)


def capacity_bound(
    dimension: int, radius_factor: float, beta: float = 1.0, failure_probability: float = 0.001
) -> float:
    """
    Ramsauer et al.'s lower bound `sqrt(p) * c ** ((d - 1) / 4)` on the number of patterns; see [`capacity_constant`].

    Args:
        dimension, radius_factor, beta, failure_probability: As for [`capacity_constant`].

    Returns:
        `float`: The bound.

    Example:

    ```python
    >>> from hf_sparse_hopfield.functional import capacity_bound

    >>> round(capacity_bound(20, 3.0), 2)
    7.41
    ```
    """
    constant = capacity_constant(dimension, radius_factor, beta, failure_probability)
    return math.sqrt(failure_probability) * constant ** ((dimension - 1) / 4)
