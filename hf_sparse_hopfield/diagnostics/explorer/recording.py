# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""What a model retrieves on one sample, with its own settings and with dense attention."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ...backends import RetrievalProblem, RetrievalResult
from ...backends.masks import visible
from ...backends.registry import find_backend
from ...model_running import evaluating, on_device
from ...observation import HeadSettings, Observer, observed, own_settings
from ...observed_problems import visible_keys, with_settings
from ...retrieval_parameters import RetrievalParameters
from ..head_counter import HeadCounter
from .copying import copied_shares
from .rows import Rows
from .streams import Stream, Streams


_DENSE = HeadSettings(1.0, 1.0)
MOST_POSITIONS = 4096  # queries or keys of a layer


@dataclass
class Retrieved:
    """
    One run of one layer.

    Args:
        settings (`dict[str, list[float]]`): `alpha`, `beta` and `length_power` of each head.
        steps (`int`): Evaluations of the normalizer.
        queries, keys ([`Stream`]): What they are.
        rows ([`Rows`]): The weights.
        seen (`torch.Tensor` of shape `(1 or heads, queries)`): Number of keys that each query sees.
        counted (`dict[str, list]`): Quantities of [`HeadCounter`], one entry per head.
        copied (`dict[str, list]`): From [`copied_shares`].
        energies (`torch.Tensor` of shape `(steps, heads, queries)`, *optional*): With more than one step.
    """

    settings: dict[str, list[float]]
    steps: int
    queries: Stream
    keys: Stream
    rows: Rows
    seen: torch.Tensor
    counted: dict[str, list]
    copied: dict[str, list]
    energies: torch.Tensor | None


class _Recorder(Observer):
    """
    Records all retrievals of a run.

    Args:
        streams ([`Streams`]): What queries and keys are.
        sparse (`bool`): Whether the model runs with its own settings, or dense.
        budget (`int`): Largest number of keys to list for a layer.
        bar (`tqdm.tqdm`): Counts the layers.
    """

    def __init__(self, streams: Streams, sparse: bool, budget: int, bar: Any) -> None:
        self.streams, self.sparse, self.budget, self.bar = streams, sparse, budget, bar
        self.parameters: dict[str, RetrievalParameters] = {}
        self.retrieved: dict[str, Retrieved] = {}

    def settings(self, name: str, parameters: RetrievalParameters) -> HeadSettings | None:
        return own_settings(parameters) if self.sparse else None

    def observe(self, name: str, problem: RetrievalProblem) -> None:
        queries, keys = problem.query.shape[2], problem.key.shape[2]
        if max(queries, keys) > MOST_POSITIONS:
            raise ValueError(
                f"inputs must have at most {MOST_POSITIONS} positions to be explored, but {name} has {queries} queries and {keys} "
                "keys: give shorter ones."
            )
        settings = own_settings(self.parameters[name]) if self.sparse else _DENSE
        result = _solved(problem if self.sparse else dataclasses.replace(problem, steps=1), settings)
        assert result.weights is not None  # asked for
        weights = result.weights[:1].float().cpu()  # a layer may cut a sample into windows: the first one
        if weights.isnan().any():
            raise ValueError(
                f"{name} has weights that are not numbers (NaN): the model is damaged, or its inputs are."
            )
        heads = weights.shape[1]
        seen = visible_keys(problem)[:1].cpu()
        streams = self.streams.of_layer(name, queries, keys)
        counter = HeadCounter()
        counter.add(name, weights, seen)
        rows = Rows.of(weights[0], list_tiny=self.sparse)
        self.retrieved[self._run(name)] = Retrieved(
            settings={key: _per_head(value, heads) for key, value in settings._asdict().items()},
            steps=problem.steps if self.sparse else 1,
            queries=streams[0],
            keys=streams[1],
            rows=rows.limited(max(1, self.budget // max(1, heads * queries))),
            seen=seen[0],
            counted={
                **{key: counter.mean(name, key) for key in ("support", "keys", "entropy", "sink")},
                "dead": counter.dead(name),
            },
            copied=copied_shares(
                weights[0], _allowed(problem), streams[0] is streams[1], streams[0].ids, streams[1].ids
            ),
            energies=None if result.energies is None else result.energies[:, 0].float().cpu(),
        )
        self.bar.update()

    def _run(self, name: str) -> str:
        """The name of a layer, with a number if it runs again (layers that share their weights)."""
        runs = sum(other == name or other.startswith(f"{name}, run ") for other in self.retrieved)
        return f"{name}, run {runs + 1}" if runs else name


def _solved(problem: RetrievalProblem, settings: HeadSettings) -> RetrievalResult:
    # weights come in the dtype of the queries: half precision would round them
    query = problem.query.to(torch.promote_types(problem.query.dtype, torch.float32))
    problem = dataclasses.replace(problem, query=query, return_weights=True, return_trace=problem.steps > 1)
    problem = with_settings(problem, *settings)
    return find_backend(problem, "reference").run(problem)


def _allowed(problem: RetrievalProblem) -> torch.Tensor:
    """Which keys each query of the first sample sees, `(1 or heads, queries, keys)`."""
    queries, keys = problem.query.shape[2], problem.key.shape[2]
    allowed = visible(problem)
    if allowed is None:
        return torch.ones(1, queries, keys, dtype=torch.bool)
    allowed = allowed.reshape((1,) * (4 - allowed.ndim) + allowed.shape)
    return allowed[0].expand(-1, queries, keys).cpu()


def _per_head(value: float | torch.Tensor, heads: int) -> list[float]:
    values = torch.as_tensor(value).detach().double().reshape(-1).tolist()
    return values * heads if len(values) == 1 else values


@torch.no_grad()
def retrievals(
    model: nn.Module, inputs: dict[str, Any], streams: Streams, sparse: bool, budget: int, bar: Any
) -> dict[str, Retrieved]:
    """
    Run a model on one sample and record what each layer retrieves.

    Args:
        model (`torch.nn.Module`): A converted model, or one made of Hopfield layers; not wrapped.
        inputs (`dict`): Model inputs, one sample.
        streams ([`Streams`]): What queries and keys are.
        sparse (`bool`): Whether to run it with its own settings, or with dense attention.
        budget (`int`): Largest number of keys to list for a layer.
        bar (`tqdm.tqdm`): Counts the layers, of two runs.

    Returns:
        `dict[str, Retrieved]`: By the path of the layer. A layer that runs several times has several entries.
    """
    recorder = _Recorder(streams, sparse, budget, bar)
    with evaluating(model), observed(model, recorder) as recorder.parameters:
        bar.total = 2 * len(recorder.parameters)  # more, if layers run several times
        model(**on_device(inputs, model))
    if not recorder.retrieved:
        raise ValueError("the model runs none of its sparse layers on these inputs.")
    return recorder.retrieved


def first_sample(inputs: dict[str, Any]) -> dict[str, Any]:
    """The first sample of a batch."""
    return {
        name: value[:1] if isinstance(value, torch.Tensor) and value.ndim else value for name, value in inputs.items()
    }
