# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Looking on while a model's attention modules retrieve, on the registry and patched families alike.

[`observed`] shows an [`Observer`] every retrieval of a model as a `RetrievalProblem` with the model's own beta = 1 and
alpha = 1, and lets it say which beta and alpha the model goes on with. Calibration and diagnostics are observers.
"""

import contextvars
import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from .backends import Backend, RetrievalProblem, RetrievalResult, register_backend, select_backend, unregister_backend
from .backends.reference import visible
from .integration.binding import LayerRetrieval, Site, attention_sites
from .integration.patches import SparseSoftmax
from .retrieval import MASKED_BELOW


Setting = float | torch.Tensor

_MATRIX_PRODUCTS = (
    torch.matmul,
    torch.bmm,
    torch.Tensor.matmul,
    torch.Tensor.bmm,
    torch.Tensor.__matmul__,
)


class Observer:
    """Sees every retrieval of a model. By default it does nothing, and the model runs dense."""

    def settings(self, name: str, retrieval: LayerRetrieval) -> tuple[Setting, Setting] | None:
        """
        What an attention module goes on with.

        Args:
            name (`str`): Path of the attention module.
            retrieval ([`LayerRetrieval`]): What it would retrieve with by itself.

        Returns:
            `tuple` or `None`: beta and alpha, numbers or one per head; `None` for the model's own dense attention.
        """
        return None

    def observe(self, name: str, problem: RetrievalProblem) -> None:
        """
        See one retrieval, without gradient.

        Args:
            name (`str`): Path of the attention module.
            problem ([`RetrievalProblem`]):
                What is to be retrieved, with `beta` and `alpha` of the dense model. Of an attention class that computes
                its weights itself the queries are the scores and the keys are unit vectors; if also its values are out
                of reach, these are unit vectors too.
        """


def evaluate(
    problem: RetrievalProblem, beta: Setting, alpha: Setting, return_weights: bool = False, backend: str = "auto"
) -> RetrievalResult:
    """
    Solve an observed problem with other settings.

    Args:
        problem ([`RetrievalProblem`]): As an [`Observer`] sees it.
        beta (`float` or `torch.Tensor` of shape `(heads,)`): Factor on the model's own scores.
        alpha (`float` or `torch.Tensor` of shape `(heads,)`): Member of the entmax family.
        return_weights (`bool`, *optional*, defaults to `False`): Have the weights in the result, too.
        backend (`str`, *optional*, defaults to `"auto"`): Which backend is to compute it.
    """
    beta, alpha = _per_head(beta, problem), _per_head(alpha, problem)
    problem = dataclasses.replace(
        problem, beta=problem.beta * beta, alpha=alpha, return_weights=return_weights, return_trace=False
    )
    return select_backend(problem, backend)[0].run(problem)


def evaluate_dense(problem: RetrievalProblem, return_weights: bool = False) -> RetrievalResult:
    """Solve an observed problem as the dense model does: softmax, one step."""
    return evaluate(dataclasses.replace(problem, steps=1), 1.0, 1.0, return_weights)


def visible_keys(problem: RetrievalProblem) -> torch.Tensor:
    """How many keys each query may attend to, shape `(batch, 1 or heads, queries)`; 0 for queries that are padding."""
    batch, _, queries, _ = problem.query.shape
    keys = problem.key.shape[2]
    allowed = _allowed(problem)
    if allowed is None:
        return torch.full((batch, 1, queries), keys, device=problem.query.device)
    allowed = allowed.expand(batch, -1, queries, keys)
    count = allowed.sum(-1)
    if queries == keys:  # among themselves, a position that nobody may attend to is padding
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
        rows (`int`): How many queries, at most, counted over the batch.
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

    def pick(tensor: torch.Tensor | None) -> torch.Tensor | None:
        if tensor is None:
            return None
        tensor = tensor if tensor.shape[0] == 1 else tensor[samples]
        return tensor if tensor.shape[2] == 1 else tensor[:, :, positions]

    smaller = dataclasses.replace(
        problem,
        query=pick(problem.query),
        key=problem.key[samples],
        value=problem.value[samples],
        beta=pick(problem.beta) if isinstance(problem.beta, torch.Tensor) else problem.beta,
        mask=pick(_allowed(problem)),
        bias=pick(problem.bias),
        is_causal=False,
        sliding_window=None,
    )
    return smaller, count[samples][:, :, positions]


@contextmanager
def observed(model: nn.Module, observer: Observer) -> Iterator[list[Site]]:
    """
    Within the context, `observer` sees all that the sparse attention modules of `model` retrieve.

    Args:
        model ([`~transformers.PreTrainedModel`]): A model that retrieves sparsely.
        observer ([`Observer`]): Who is to see it.

    Yields:
        `list[Site]`: The attention modules that will be seen.
    """
    sites = [site for site in attention_sites(model) if getattr(site.module, "sparse_hopfield", None) is not None]
    if not sites:
        raise ValueError(
            f"{type(model).__name__} has no attention module that retrieves sparsely; convert it with to_sparse_hopfield."
        )
    previous = {site.name: vars(site.module).get("forward") for site in sites}
    backends = {site.name: site.module.sparse_hopfield.backend for site in sites}
    register_backend(Backend(_NAME, _run_observed, lambda problem: None if _LOOKING.get() else "nobody is looking on"))
    try:
        for site in sites:
            site.module.sparse_hopfield.backend = "auto"
            site.module.forward = _observed_forward(site, observer, backends[site.name])
        yield sites
    finally:
        for site in sites:
            site.module.sparse_hopfield.backend = backends[site.name]
            if previous[site.name] is None:
                del site.module.forward
            else:
                site.module.forward = previous[site.name]
        unregister_backend(_NAME)


_NAME = "observed"
_LOOKING: contextvars.ContextVar["_Look | None"] = contextvars.ContextVar("looking", default=None)


@dataclasses.dataclass
class _Look:
    """An observer at one attention module, for the time of its forward."""

    name: str
    retrieval: LayerRetrieval
    observer: Observer
    backend: str
    own: Setting  # the beta that the module puts into what it has `retrieve` compute
    device: torch.device | None

    def show(self, problem: RetrievalProblem) -> None:
        with torch.no_grad():
            self.observer.observe(self.name, problem)

    def chosen(self) -> tuple[Setting, Setting] | None:
        settings = self.observer.settings(self.name, self.retrieval)
        if settings is None:
            return None
        return tuple(setting.to(self.device) if isinstance(setting, torch.Tensor) else setting for setting in settings)


def _observed_forward(site: Site, observer: Observer, backend: str):
    module, patched = site.module, not site.kind.registry
    # The plain forward of a patched class: here the observed softmax takes the place of the sparse one.
    forward = type(module)._dense_forward.__get__(module) if patched else module.forward

    def observed_forward(*args, **kwargs):
        retrieval = module.sparse_hopfield
        parameter = next(module.parameters(), None)
        device = None if parameter is None else parameter.device
        look = _Look(site.name, retrieval, observer, backend, 1.0 if patched else retrieval(device)[0], device)
        token = _LOOKING.set(look)
        try:
            if not patched:
                return forward(*args, **kwargs)
            softmax = _ObservedSoftmax(look, site.kind)
            with softmax:
                output = forward(*args, **kwargs)
            softmax.show_pending(None)
            return output
        finally:
            _LOOKING.reset(token)

    return observed_forward


def _run_observed(problem: RetrievalProblem) -> RetrievalResult:
    """The backend that an observed module reaches: shows the problem, then has another backend solve it."""
    look = _LOOKING.get()
    token = _LOOKING.set(None)  # whatever is computed from here on is not seen again
    try:
        # What the module put into beta besides its own setting (a scaling that is a tensor) belongs to the dense model.
        own = _per_head(look.own, problem)
        factor = problem.beta / own if isinstance(problem.beta, torch.Tensor) else problem.beta / float(own)
        plain = dataclasses.replace(problem, beta=factor, alpha=1.0, return_weights=False, return_trace=False)
        look.show(plain)
        chosen = look.chosen()
        if chosen is None:
            solved = dataclasses.replace(problem, beta=factor, alpha=1.0, steps=1)
            return select_backend(solved)[0].run(solved)
        beta, alpha = (_per_head(setting, problem) for setting in chosen)
        solved = dataclasses.replace(problem, beta=factor * beta, alpha=alpha)
        return select_backend(solved, look.backend)[0].run(solved)
    finally:
        _LOOKING.reset(token)


def _per_head(setting: Setting, problem: RetrievalProblem) -> Setting:
    if not isinstance(setting, torch.Tensor):
        return setting
    return setting.to(problem.query.device).reshape(1, -1, 1, 1)


class _ObservedSoftmax(SparseSoftmax):
    """
    In the place of `SparseSoftmax`: takes down the scores, and the values that the weights are multiplied with.

    What the module has torch compute as a whole (`scaled_dot_product_attention`) goes to `_run_observed` as plain softmax,
    and is observed there.
    """

    def __init__(self, look: _Look, kind) -> None:
        super().__init__(1.0, 1.0, kind, look.name)
        self.look = look
        self.pending: _Pending | None = None

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if self.pending is not None and func in _MATRIX_PRODUCTS and len(args) > 1:
            weights = self.pending.weights
            # dropout, which does nothing in evaluation, and views may come in between: the memory is the same
            if isinstance(args[0], torch.Tensor) and args[0].data_ptr() == weights.data_ptr():
                self.show_pending(_value_of(args[0], args[1], weights))
        return super().__torch_function__(func, types, args, kwargs)

    def normalised(self, scores: torch.Tensor, dim: int) -> torch.Tensor:
        self.show_pending(None)
        chosen = self.look.chosen()
        weights = self.weights(scores, dim, *(chosen or (1.0, 1.0)))
        self.pending = _Pending(weights, scores.detach(), dim, chosen is None)
        return weights

    def problem(self, scores: torch.Tensor, dim: int) -> RetrievalProblem:
        scores = self.canonical(scores.movedim(dim, -1).float())
        allowed = scores > MASKED_BELOW
        units = _units(scores)
        return RetrievalProblem(
            query=scores.masked_fill(~allowed, 0), key=units, value=units, scaling=1.0, alpha=1.0, mask=allowed
        )

    def canonical(self, tensor: torch.Tensor) -> torch.Tensor:
        """Scores or values in the layout of this attention class as `(batch, heads, ., .)`."""
        heads = self.look.retrieval.num_heads
        if self.kind.heads is None:
            return tensor.reshape(-1, 1, *tensor.shape[-2:])
        if self.kind.heads == "flat":
            return tensor.reshape(-1, heads, *tensor.shape[-2:])
        axis = int(self.kind.heads.removeprefix("axis "))
        tensor = tensor.movedim(axis, -3)
        return tensor.reshape(-1, *tensor.shape[-3:])

    def show_pending(self, value: torch.Tensor | None) -> None:
        if self.pending is None:
            return
        pending, self.pending = self.pending, None
        problem = self.problem(pending.scores, pending.dim)
        if value is not None:
            value = self.canonical(value.float())
            if value.shape[:3] == problem.key.shape[:3]:
                problem = dataclasses.replace(problem, value=value)
        token = _LOOKING.set(None)
        try:
            self.look.show(problem)
            chosen = self.look.chosen() if pending.dense and value is not None else None
            if chosen is not None and not torch.is_grad_enabled():
                # The observer had to see the values first. Nothing has read the weights yet: they are about to be.
                pending.weights.copy_(self.weights(pending.scores, pending.dim, *chosen))
        finally:
            _LOOKING.reset(token)


@dataclasses.dataclass
class _Pending:
    """Weights that have not been multiplied with their values yet, what they were computed from, and whether as softmax."""

    weights: torch.Tensor
    scores: torch.Tensor
    dim: int
    dense: bool


def _value_of(factor: torch.Tensor, value: Any, weights: torch.Tensor) -> torch.Tensor | None:
    """What weights, perhaps with their leading dimensions flattened, are multiplied with, in the layout of the weights."""
    if not isinstance(value, torch.Tensor) or factor.shape[-2:] != weights.shape[-2:] or factor.ndim != value.ndim:
        return None
    if factor.numel() != weights.numel() or value.shape[-2] != weights.shape[-1]:
        return None
    value = value.detach().expand(*factor.shape[:-2], *value.shape[-2:])
    return value.reshape(*weights.shape[:-2], *value.shape[-2:])


def _units(scores: torch.Tensor) -> torch.Tensor:
    batch, heads, _, keys = scores.shape
    return torch.eye(keys, dtype=scores.dtype, device=scores.device).expand(batch, heads, keys, keys)
