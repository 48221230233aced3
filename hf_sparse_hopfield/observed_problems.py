# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Working with the retrievals that an observer sees: solve them with other settings, count visible keys, sample rows."""

import dataclasses

import torch

from .backends import RetrievalProblem, RetrievalResult
from .backends.lengths import with_row_beta
from .backends.masks import visible
from .backends.registry import find_backend


Setting = float | torch.Tensor


def per_head(setting: Setting, problem: RetrievalProblem) -> Setting:
    """Bring one value per head into the shape that backends take."""
    if not isinstance(setting, torch.Tensor):
        return setting
    return setting.to(problem.query.device).reshape(1, -1, 1, 1)


def with_settings(
    problem: RetrievalProblem, beta: Setting, alpha: Setting, length_power: Setting = 0.0
) -> RetrievalProblem:
    """An observed problem with other settings: numbers, or one per head."""
    beta, alpha, power = (per_head(setting, problem) for setting in (beta, alpha, length_power))
    return with_row_beta(dataclasses.replace(problem, beta=problem.beta * beta, alpha=alpha, length_power=power))


def evaluate(
    problem: RetrievalProblem,
    beta: Setting,
    alpha: Setting,
    return_weights: bool = False,
    backend: str = "auto",
    length_power: Setting = 0.0,
) -> RetrievalResult:
    """
    Solve an observed problem with other settings.

    Args:
        problem ([`RetrievalProblem`]): As an [`Observer`] sees it.
        beta (`float` or `torch.Tensor` of shape `(heads,)`): Factor of the model's own scores.
        alpha (`float` or `torch.Tensor` of shape `(heads,)`): Member of the entmax family.
        return_weights (`bool`, *optional*, defaults to `False`): Also return the weights.
        backend (`str`, *optional*, defaults to `"auto"`): Name of the backend.
        length_power (`float` or `torch.Tensor` of shape `(heads,)`, *optional*, defaults to 0.0):
            Power of the number of visible keys in beta.
    """
    problem = dataclasses.replace(problem, return_weights=return_weights, return_trace=False)
    problem = with_settings(problem, beta, alpha, length_power)
    return find_backend(problem, backend).run(problem)


def evaluate_weights(
    problem: RetrievalProblem, beta: Setting, alpha: Setting, length_power: Setting = 0.0
) -> torch.Tensor:
    """The weights of an observed problem with other settings, `(batch, heads, queries, keys)`."""
    weights = evaluate(problem, beta, alpha, True, "reference", length_power).weights
    assert weights is not None  # asked for
    return weights


def evaluate_dense(problem: RetrievalProblem, return_weights: bool = False) -> RetrievalResult:
    """Solve an observed problem as the dense model does: softmax, one step."""
    return evaluate(dataclasses.replace(problem, steps=1), 1.0, 1.0, return_weights)


def visible_keys(problem: RetrievalProblem) -> torch.Tensor:
    """The number of keys that each query may attend to, `(batch, 1 or heads, queries)`; 0 for padding."""
    batch, _, queries, _ = problem.query.shape
    keys = problem.key.shape[2]
    allowed = _allowed(problem)
    if allowed is None:
        return torch.full((batch, 1, queries), keys, device=problem.query.device)
    allowed = allowed.expand(batch, -1, queries, keys)
    count = allowed.sum(-1)
    if queries == keys:  # in self-attention, a position that no query may attend to is padding
        count = count * allowed.any(-2)
    return count


def _allowed(problem: RetrievalProblem) -> torch.Tensor | None:
    allowed = visible(problem)
    return None if allowed is None else allowed.reshape((1,) * (4 - allowed.ndim) + allowed.shape)


def sampled(problem: RetrievalProblem, rows: int, generator: torch.Generator) -> tuple[RetrievalProblem, torch.Tensor]:
    """
    Some of the queries of a problem, the same in all heads.

    Args:
        problem ([`RetrievalProblem`]): The problem.
        rows (`int`): The largest number of queries, counted over the batch.
        generator (`torch.Generator`): Chooses them. On the CPU.

    Returns:
        `tuple`: The smaller problem, and its [`visible_keys`].
    """
    count = visible_keys(problem)
    batch, _, queries, _ = problem.query.shape
    if batch * queries <= rows:
        return problem, count
    samples = torch.randperm(batch, generator=generator)[:rows].sort().values
    positions = torch.randperm(queries, generator=generator)[: max(1, rows // len(samples))].sort().values
    samples, positions = samples.to(problem.query.device), positions.to(problem.query.device)

    def pick(tensor: torch.Tensor) -> torch.Tensor:
        tensor = tensor if tensor.shape[0] == 1 else tensor[samples]
        return tensor if tensor.shape[2] == 1 else tensor[:, :, positions]

    allowed = _allowed(problem)
    smaller = dataclasses.replace(
        problem,
        query=pick(problem.query),
        key=problem.key[samples],
        value=problem.value[samples],
        beta=pick(problem.beta) if isinstance(problem.beta, torch.Tensor) else problem.beta,
        mask=None if allowed is None else pick(allowed),
        bias=None if problem.bias is None else pick(problem.bias),
        is_causal=False,
        sliding_window=None,
        segments=None,  # in the mask
    )
    return smaller, count[samples][:, :, positions]
