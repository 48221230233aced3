# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The one way to watch what the layers of a model retrieve. Calibration, diagnostics and sparsity logging use it.

Within [`observed`], an [`Observer`] sees every retrieval of a model as a `RetrievalProblem` with the dense model's beta = 1
and alpha = 1, and chooses the beta and alpha that the model continues with.

Layers call [`retrieve_with`] instead of `retrieve` (attention classes that compute their own softmax call [`look_at`]).
Observers live in a context variable, so threads and asyncio tasks do not disturb each other, and observation nests: every
observer sees the retrieval, and the innermost one chooses the settings.
"""

import contextvars
import dataclasses
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch import nn

from .backends import RetrievalProblem
from .backends.registry import find_backend
from .observed_problems import Setting, with_settings
from .retrieval import canonical, retrieve
from .retrieval_parameters import RetrievalParameters


if TYPE_CHECKING:
    from .parallel.heads import LocalHeads


class HeadSettings(NamedTuple):
    """What a layer retrieves with: numbers, or one per head."""

    beta: Setting
    alpha: Setting
    length_power: Setting = 0.0


class Observer:
    """Sees every retrieval of a model. By default it does nothing, and the model runs dense."""

    def settings(self, name: str, parameters: RetrievalParameters) -> HeadSettings | None:
        """
        Choose what a layer continues with, after [`~Observer.observe`].

        Args:
            name (`str`): Path of the layer.
            parameters ([`RetrievalParameters`]): Its own alpha and beta.

        Returns:
            [`HeadSettings`] or `None`: `None` for the model's own dense attention.
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
    """An [`Observer`] that lets the model continue with its own settings."""

    def settings(self, name: str, parameters: RetrievalParameters) -> HeadSettings:
        return own_settings(parameters)


def own_settings(parameters: RetrievalParameters) -> HeadSettings:
    """The settings that a layer has now."""
    beta, alpha = parameters()
    return HeadSettings(beta, alpha, parameters.length_power)


@dataclasses.dataclass(eq=False)
class _Frame:
    """One [`observed`] context: an observer and the layers it sees."""

    observer: Observer
    names: dict[RetrievalParameters, str]
    active: bool = True  # a thread or task that was started in the context may outlive it


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
    names = {module: _layer_name(path) for path, module in _retrieval_parameters(model)}
    if not names:
        raise ValueError(
            f"{type(model).__name__} has no layer that retrieves sparsely; convert it with to_sparse_hopfield."
        )
    frame = _Frame(observer, names)
    _FRAMES.set((*_FRAMES.get(), frame))
    try:
        with _uncompiled() if has_compiled_parts(model) else nullcontext():
            yield {name: parameters for parameters, name in names.items()}
    finally:
        frame.active = False
        # contexts of generators need not end in the order in which they began
        _FRAMES.set(tuple(other for other in _FRAMES.get() if other is not frame))


def _retrieval_parameters(model: nn.Module) -> Iterator[tuple[str, RetrievalParameters]]:
    """The alpha and beta of each layer. Where adapters of peft have their own, the layer calls the module around them."""
    wrapped: set[nn.Module] = set()
    for path, module in model.named_modules():
        if isinstance(getattr(module, "original_module", None), RetrievalParameters):
            wrapped.update(module.modules())
            yield path, cast(RetrievalParameters, module)  # it passes on all that an observer reads
        elif isinstance(module, RetrievalParameters) and module not in wrapped:
            yield path, module


def _layer_name(path: str) -> str:
    """Path of the layer that a [`RetrievalParameters`] at `path` belongs to."""
    return (path.rpartition(".")[0] or path).removesuffix(".association_core")


class _Eager:
    """Turns off compilation while models are observed. The switch of torch is global, so the observers are counted."""

    lock = threading.Lock()
    users = 0
    stance: Any = None


@contextmanager
def _uncompiled() -> Iterator[None]:
    """Run compiled models eagerly: a compiled graph shows nothing to an observer."""
    with _Eager.lock:
        if not _Eager.users:
            _Eager.stance = torch.compiler.set_stance("force_eager")
            _Eager.stance.__enter__()
        _Eager.users += 1
    try:
        yield
    finally:
        with _Eager.lock:
            _Eager.users -= 1
            if not _Eager.users:
                _Eager.stance.__exit__(None, None, None)


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

    def chosen(self, device: torch.device) -> HeadSettings | None:
        """What the innermost observer chooses; `None` for dense attention."""
        observer, name = self.watching[-1]
        with _unobserved():
            settings = observer.settings(name, self.parameters)
        if settings is None:
            return None
        return HeadSettings(*(value.to(device) if isinstance(value, torch.Tensor) else value for value in settings))

    def retrieve(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        factor: Setting = 1.0,
        heads: "LocalHeads | None" = None,
        backend: str = "auto",
        **options: Any,
    ) -> Any:
        """As [`retrieve_with`], while observed."""
        options.pop("screen", None)  # observers may change the keys
        problem = canonical(RetrievalProblem(query, key, value, beta=factor, alpha=1.0, **options))
        self.show(problem if heads is None else heads.all_heads(problem))
        settings = self.chosen(query.device)
        if settings is None:
            problem, backend = dataclasses.replace(problem, steps=1), "auto"
        else:
            problem = with_settings(problem, *(_own(setting, heads) for setting in settings))
        result = find_backend(problem, backend).run(problem)
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
    seen_by = [frame for frame in frames if frame.active and parameters in frame.names]
    watching = [(frame.observer, frame.names[parameters]) for frame in seen_by]
    return Look(parameters, watching) if watching else None


def retrieve_with(
    parameters: RetrievalParameters,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    factor: Setting = 1.0,
    heads: "LocalHeads | None" = None,
    **options: Any,
) -> Any:
    """
    Retrieve with the alpha and beta of a layer, and let its observers see it.

    Args:
        parameters ([`RetrievalParameters`]): alpha and beta of the layer.
        query, key, value (`torch.Tensor`): As for [`retrieve`].
        factor (`float` or `torch.Tensor`, *optional*, defaults to 1.0): Another factor of the scores besides beta.
        heads ([`~parallel.heads.LocalHeads`], *optional*):
            Which heads of the layer these are, if other processes have the rest.
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
        return look.retrieve(query, key, value, factor=factor, heads=heads, **options)
    beta, alpha = parameters(torch.float64 if query.dtype == torch.float64 else torch.float32)
    power = parameters.length_power
    if heads is not None:
        beta, alpha, power = heads.take(beta), heads.take(alpha), heads.take(power)
    if not (isinstance(factor, float) and factor == 1.0):
        beta = beta * factor
    return retrieve(query, key, value, beta=beta, alpha=alpha, length_power=power, **options)


def _own(setting: Setting, heads: "LocalHeads | None") -> Setting:
    """The values of the heads that this process computes."""
    return setting if heads is None else heads.take(setting)


@contextmanager
def _unobserved() -> Iterator[None]:
    token = _FRAMES.set(())
    try:
        yield
    finally:
        _FRAMES.reset(token)
