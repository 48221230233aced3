# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""How the heads of a sparse model use their keys: `sparsity_report` in full, `layer_sparsity` in short."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import nn

from ..backends import RetrievalProblem
from ..checks import check_integer
from ..model_running import batch_size, evaluating, on_device
from ..observation import OwnSettings, observed, own_settings
from ..observed_problems import evaluate_weights, sampled
from ..progress import progress_bar
from ..retrieval_parameters import RetrievalParameters
from .head_counter import HeadCounter


@dataclass
class SparsityReport:
    """
    How the heads of a model use their keys.

    Args:
        layers (`dict[str, dict[str, list]]`):
            For each layer, one entry per head of: `alpha`, `beta`; `steps`, of the layer; `support`, mean number of keys
            with weight; `keys`, mean number of visible keys; `share`, total support over total visible keys; `entropy`,
            mean in nats; `sink`, mean weight of the first key; `dead`, whether all weight goes to the first key or to a learned
            sink, or is the same for every key.
        rows (`int`): Number of rows of weights that were counted in each layer.
        loss (`float`, *optional*): The model's mean loss, if the batches have labels.
    """

    layers: dict[str, dict[str, list]] = field(default_factory=dict)
    rows: int = 0
    loss: float | None = None

    def matrix(self, name: str) -> list[list[float]]:
        """One of the quantities, with a row for each layer and a column for each head."""
        return [layer[name] for layer in self.layers.values()]

    @property
    def share(self) -> float:
        """Share of the visible keys that get weight, in the whole model."""
        support = sum(sum(layer["support"]) for layer in self.layers.values())
        return support / max(sum(sum(layer["keys"]) for layer in self.layers.values()), 1e-12)

    @property
    def dead_heads(self) -> list[tuple[str, int]]:
        """Layer and number of each dead head."""
        return [(name, i) for name, layer in self.layers.items() for i, dead in enumerate(layer["dead"]) if dead]

    def to_dict(self) -> dict[str, Any]:
        """As plain values that JSON can hold, with the summary."""
        return {**asdict(self), "share": self.share, "dead_heads": self.dead_heads}

    def to_json_string(self) -> str:
        """As JSON."""
        return json.dumps(self.to_dict(), indent=2) + "\n"


class _Observer(OwnSettings):
    """Counts some of the rows of each layer."""

    def __init__(self, rows: int, seed: int) -> None:
        check_integer("rows", rows)
        self.rows = rows
        self.generator = torch.Generator().manual_seed(seed)
        self.parameters: dict[str, RetrievalParameters] = {}
        self.values: dict[str, dict[str, Any]] = {}  # alpha, beta and steps, as the layer ran
        self.counter = HeadCounter()

    def observe(self, name: str, problem: RetrievalProblem) -> None:
        # read here, while the layer runs: elsewhere its parameters may be sharded (FSDP, ZeRO-3)
        settings = own_settings(self.parameters[name])
        numbers = {key: torch.as_tensor(value).reshape(-1).tolist() for key, value in settings._asdict().items()}
        self.values[name] = {**numbers, "steps": problem.steps}
        problem, visible = sampled(problem, self.rows, self.generator)
        self.counter.add(name, evaluate_weights(problem, *settings), visible)


def _count(
    model: nn.Module, batches: Iterable[dict[str, Any]], observer: _Observer, progress: bool = False
) -> float | None:
    """Run the model, observed; returns its mean loss if the batches have labels."""
    total, samples = 0.0, 0
    with (
        evaluating(model),
        observed(model, observer) as observer.parameters,
        progress_bar("inspecting", batches, enabled=progress) as bar,
    ):
        for batch in bar:
            loss = getattr(model(**on_device(batch, model)), "loss", None)
            if loss is not None:
                total += float(loss) * batch_size(batch)
                samples += batch_size(batch)
    if not observer.values:
        raise ValueError("batches is empty, or the model runs none of its sparse layers.")
    return total / samples if samples else None


@torch.no_grad()
def sparsity_report(
    model: nn.Module, batches: Iterable[dict[str, Any]], *, rows: int = 256, seed: int = 0, progress: bool = False
) -> SparsityReport:
    """
    Run a sparse model and count the keys that its heads use.

    Args:
        model (`torch.nn.Module`): A converted model, or one made of Hopfield layers; not wrapped.
        batches (iterable of `dict`): Model inputs.
        rows (`int`, *optional*, defaults to 256): Number of queries per batch to count in each layer.
        seed (`int`, *optional*, defaults to 0): Chooses these queries.
        progress (`bool`, *optional*, defaults to `False`): Show progress.

    Returns:
        [`SparsityReport`]

    Example:

    ```python
    >>> import torch
    >>> from transformers import BertConfig, BertModel
    >>> from hf_sparse_hopfield import to_sparse_hopfield
    >>> from hf_sparse_hopfield.diagnostics import sparsity_report

    >>> model = BertModel(BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, vocab_size=100))
    >>> report = sparsity_report(to_sparse_hopfield(model, {"beta": 9.0}), [{"input_ids": torch.arange(9)[None]}])
    >>> 0 < report.share <= 1
    True

    ```
    """
    observer = _Observer(rows, seed)
    report = SparsityReport(loss=_count(model, batches, observer, progress))
    counter = observer.counter
    report.rows = int(max(sums["rows"].max() for sums in counter.sums.values()))
    for name, values in observer.values.items():
        heads = len(counter.sums[name]["rows"])
        report.layers[name] = {
            "alpha": _for_all([round(value, 6) for value in values["alpha"]], heads),
            "beta": _for_all([round(value, 6) for value in values["beta"]], heads),
            "steps": [values["steps"]] * heads,
            "support": counter.mean(name, "support"),
            "keys": counter.mean(name, "keys"),
            "share": counter.share(name).tolist(),
            "entropy": counter.mean(name, "entropy"),
            "sink": counter.mean(name, "sink"),
            "dead": [reason is not None for reason in counter.dead(name)],
        }
    return report


@torch.no_grad()
def layer_sparsity(
    model: nn.Module, batches: Sequence[dict[str, Any]], rows: int = 64
) -> dict[str, dict[str, list[float]]]:
    """
    Run a sparse model and count the keys that its heads use, in the few quantities that a training log shows.

    Args:
        model (`torch.nn.Module`): A converted model, or one made of Hopfield layers; not wrapped.
        batches (sequence of `dict`): Model inputs.
        rows (`int`, *optional*, defaults to 64): Number of queries per batch to count in each layer.

    Returns:
        `dict[str, dict[str, list[float]]]`: For each layer, one entry per head of: `support`, mean number of keys with
        weight; `entropy`, mean in nats; `zero_share`, share of the visible keys with weight exactly zero; and one entry per
        head or one for all of `alpha` and `beta`.

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield import SparseHopfieldForMultipleInstanceClassification, SparseHopfieldMultipleInstanceConfig
    >>> from hf_sparse_hopfield.diagnostics import layer_sparsity

    >>> config = SparseHopfieldMultipleInstanceConfig(input_size=16)
    >>> model = SparseHopfieldForMultipleInstanceClassification(config)
    >>> list(layer_sparsity(model, [{"instances": torch.randn(2, 10, 16)}]))
    ['aggregation.hopfield']

    ```
    """
    observer = _Observer(rows, seed=0)
    _count(model, batches, observer)
    counter = observer.counter
    return {
        name: {
            "alpha": values["alpha"],
            "beta": values["beta"],
            "support": counter.mean(name, "support"),
            "entropy": counter.mean(name, "entropy"),
            "zero_share": (1 - counter.share(name)).tolist(),
        }
        for name, values in observer.values.items()
    }


def _for_all(values: list[float], heads: int) -> list[float]:
    return values * heads if len(values) == 1 else values
