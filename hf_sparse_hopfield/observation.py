# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The one way to watch what the layers of a model retrieve. Calibration, diagnostics and sparsity logging use it.

Within [`observed`], an [`Observer`] sees every retrieval of a model as a `RetrievalProblem` with the dense model's beta = 1
and alpha = 1, and chooses the beta and alpha that the model continues with.

Layers call [`retrieve_with`] instead of `retrieve` (attention classes that compute their own softmax call [`look_at`]).
Observers live in a context variable, so each thread and each asyncio task has its own, and observation nests: every
observer sees the retrieval, and the innermost one chooses the settings.
"""

import contextvars
import dataclasses
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from .backends import RetrievalProblem, RetrievalResult, select_backend
from .backends.masks import visible
from .retrieval import canonical, retrieve
from .retrieval_parameters import RetrievalParameters


Setting = float | torch.Tensor


class Observer:
    """Sees every retrieval of a model. By default it does nothing, and the model runs dense."""

    def settings(self, name: str, parameters: RetrievalParameters) -> tuple[Setting, Setting] | None:
        """
        Choose what a layer continues with, after [`~Observer.observe`].

        Args:
            name (`str`): Path of the layer.
            parameters ([`RetrievalParameters`]): Its own alpha and beta.

        Returns:
            `tuple` or `None`: beta and alpha, numbers or one per head; `None` for the model's own dense attention.
        """
        return None

    def observe(self, name: str, problem: RetrievalProblem) -> None:
        """
        See one retrieval, without gradient.

        Args:
            name (`str`): Path of the layer.
            problem ([`RetrievalProblem`]):
                The retrieval, with `beta` and `alpha` of the dense model. For an attention class that computes its own
                softmax, the queries are the scores and the keys are unit vectors; if its values are out of reach, they
                are unit vectors too.
        """


class OwnSettings(Observer):
    """An [`Observer`] that lets the model continue with its own alpha and beta."""

    def settings(self, name: str, parameters: RetrievalParameters) -> tuple[Setting, Setting]:
        return parameters()


@dataclasses.dataclass(frozen=True)
class _Frame:
    """One [`observed`] context: an observer and the layers it sees."""

    observer: Observer
    names: dict[RetrievalParameters, str]


_FRAMES: contextvars.ContextVar[tuple[_Frame, ...]] = contextvars.ContextVar("observers", default=())


@contextmanager
def observed(model: nn.Module, observer: Observer) -> Iterator[dict[str, RetrievalParameters]]:
    """
    Let `observer` see all retrievals of a model, in the current thread, until the context ends.

    Args:
        model (`torch.nn.Module`): A converted model, or one made of Hopfield layers; not wrapped.
        observer ([`Observer`]): The observer.

    Yields:
        `dict[str, RetrievalParameters]`: Path of each layer that the observer sees, with its alpha and beta.

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield import SparseHopfield
    >>> from hf_sparse_hopfield.observation import Observer, observed

    >>> class Shapes(Observer):
    ...     def observe(self, name, problem):
    ...         print(name, tuple(problem.query.shape))

    >>> model = torch.nn.Sequential(SparseHopfield(8, num_heads=2))
    >>> with observed(model, Shapes()):
    ...     output = model(torch.randn(1, 5, 8))
    0 (1, 2, 5, 4)

    ```
    """
    names = {
        module: _layer_name(path) for path, module in model.named_modules() if isinstance(module, RetrievalParameters)
    }
    if not names:
        raise ValueError(
            f"{type(model).__name__} has no layer that retrieves sparsely; convert it with to_sparse_hopfield."
        )
    token = _FRAMES.set((*_FRAMES.get(), _Frame(observer, names)))
    with ExitStack() as undo:
        undo.callback(_FRAMES.reset, token)
        if has_compiled_parts(model):
            undo.enter_context(torch.compiler.set_stance("force_eager"))  # a compiled graph shows nothing
        yield {name: parameters for parameters, name in names.items()}


def _layer_name(path: str) -> str:
    """Path of the layer that a [`RetrievalParameters`] at `path` belongs to."""
    return (path.rpartition(".")[0] or path).removesuffix(".association_core")


def has_compiled_parts(model: nn.Module) -> bool:
    """Whether the model or a part of it is compiled, by `torch.compile(module)` or by `module.compile()`."""
    if "torch._dynamo" not in sys.modules:  # importing it takes a second, and nothing is compiled without it
        return False
    optimized = sys.modules["torch._dynamo"].OptimizedModule
    return any(isinstance(module, optimized) or module._compiled_call_impl is not None for module in model.modules())


class Look:
    """
    The observers of one layer, for the time of one retrieval.

    Args:
        parameters ([`RetrievalParameters`]): alpha and beta of the layer.
        watching (`list[tuple[Observer, str]]`): Its observers, outermost first, each with its name for the layer.
    """

    def __init__(self, parameters: RetrievalParameters, watching: list[tuple[Observer, str]]) -> None:
        self.parameters, self.watching = parameters, watching

    @property
    def name(self) -> str:
        """Path of the layer, as the innermost observer knows it."""
        return self.watching[-1][1]

    def show(self, problem: RetrievalProblem) -> None:
        """Show a problem to all observers. What they compute themselves is not observed."""
        problem = dataclasses.replace(problem, return_weights=False, return_trace=False, dropout=0.0)
        with _unobserved(), torch.no_grad():
            for observer, name in self.watching:
                observer.observe(name, problem)

    def chosen(self, device: torch.device) -> tuple[Setting, Setting] | None:
        """beta and alpha that the innermost observer chooses; `None` for dense attention."""
        observer, name = self.watching[-1]
        with _unobserved():
            settings = observer.settings(name, self.parameters)
        if settings is None:
            return None
        beta, alpha = (value.to(device) if isinstance(value, torch.Tensor) else value for value in settings)
        return beta, alpha

    def retrieve(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        factor: Setting = 1.0,
        backend: str = "auto",
        **options: Any,
    ) -> Any:
        """As [`retrieve_with`], in view of the observers."""
        problem = canonical(RetrievalProblem(query, key, value, beta=factor, alpha=1.0, **options))
        self.show(problem)
        settings = self.chosen(query.device)
        if settings is None:
            problem, backend = dataclasses.replace(problem, steps=1), "auto"
        else:
            beta, alpha = (_per_head(setting, problem) for setting in settings)
            problem = dataclasses.replace(problem, beta=problem.beta * beta, alpha=alpha)
        result = select_backend(problem, backend)[0].run(problem)
        return (result.output, result.weights) if problem.return_weights else result.output


def look_at(parameters: RetrievalParameters) -> Look | None:
    """
    The observers of a layer; `None` if there are none.

    Args:
        parameters ([`RetrievalParameters`]): alpha and beta of the layer.
    """
    if torch.compiler.is_compiling():
        return None
    frames = _FRAMES.get()
    if not frames:
        return None
    watching = [(frame.observer, frame.names[parameters]) for frame in frames if parameters in frame.names]
    return Look(parameters, watching) if watching else None


def retrieve_with(
    parameters: RetrievalParameters,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    factor: Setting = 1.0,
    **options: Any,
) -> Any:
    """
    Retrieve with the alpha and beta of a layer, and let its observers see it.

    Args:
        parameters ([`RetrievalParameters`]): alpha and beta of the layer.
        query, key, value (`torch.Tensor`): As for [`retrieve`].
        factor (`float` or `torch.Tensor`, *optional*, defaults to 1.0): Another factor of the scores besides beta.
        **options: As for [`retrieve`], without `alpha` and `beta`.

    Returns:
        As [`retrieve`].

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield.layers import RetrievalParameters
    >>> from hf_sparse_hopfield.observation import retrieve_with

    >>> retrieve_with(RetrievalParameters(2, alpha=1.5), *torch.randn(3, 1, 2, 8, 16)).shape
    torch.Size([1, 2, 8, 16])

    ```
    """
    look = look_at(parameters)
    if look is not None:
        return look.retrieve(query, key, value, factor=factor, **options)
    beta, alpha = parameters(torch.promote_types(query.dtype, torch.float32))
    if not (isinstance(factor, float) and factor == 1.0):
        beta = beta * factor
    return retrieve(query, key, value, beta=beta, alpha=alpha, **options)


@contextmanager
def _unobserved() -> Iterator[None]:
    token = _FRAMES.set(())
    try:
        yield
    finally:
        _FRAMES.reset(token)


def evaluate(
    problem: RetrievalProblem, beta: Setting, alpha: Setting, return_weights: bool = False, backend: str = "auto"
) -> RetrievalResult:
    """
    Solve an observed problem with other settings.

    Args:
        problem ([`RetrievalProblem`]): As an [`Observer`] sees it.
        beta (`float` or `torch.Tensor` of shape `(heads,)`): Factor of the model's own scores.
        alpha (`float` or `torch.Tensor` of shape `(heads,)`): Member of the entmax family.
        return_weights (`bool`, *optional*, defaults to `False`): Also return the weights.
        backend (`str`, *optional*, defaults to `"auto"`): Name of the backend.
    """
    beta, alpha = _per_head(beta, problem), _per_head(alpha, problem)
    problem = dataclasses.replace(
        problem, beta=problem.beta * beta, alpha=alpha, return_weights=return_weights, return_trace=False
    )
    return select_backend(problem, backend)[0].run(problem)


def evaluate_weights(problem: RetrievalProblem, beta: Setting, alpha: Setting) -> torch.Tensor:
    """The weights of an observed problem with other settings, `(batch, heads, queries, keys)`."""
    weights = evaluate(problem, beta, alpha, return_weights=True, backend="reference").weights
    assert weights is not None  # asked for
    return weights


def evaluate_dense(problem: RetrievalProblem, return_weights: bool = False) -> RetrievalResult:
    """Solve an observed problem as the dense model does: softmax, one step."""
    return evaluate(dataclasses.replace(problem, steps=1), 1.0, 1.0, return_weights)


def _per_head(setting: Setting, problem: RetrievalProblem) -> Setting:
    if not isinstance(setting, torch.Tensor):
        return setting
    return setting.to(problem.query.device).reshape(1, -1, 1, 1)


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
    )
    return smaller, count[samples][:, :, positions]
