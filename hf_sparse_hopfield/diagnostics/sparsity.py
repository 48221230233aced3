# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`sparsity_report`: support size, entropy and dead heads of a sparse model, head by head."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import nn
from tqdm.auto import tqdm

from ..backends import RetrievalProblem
from ..evaluation import batch_size, evaluating, on_device
from ..integration.binding import LayerRetrieval
from ..observation import Observer, Setting, evaluate, observed, sampled


# A head does nothing that a constant could not do if all its weight goes to the first key, or the same to every key.
_DEAD_SINK = 0.99
_DEAD_ENTROPY = 0.999


@dataclass
class SparsityReport:
    """
    What the heads of a model do with their keys.

    Args:
        layers (`dict[str, dict[str, list]]`):
            For each attention module one entry per head of: `alpha`, `beta`; `support`, mean number of keys with weight;
            `keys`, mean number of visible keys; `share`, total support over total visible keys; `entropy`, mean in nats;
            `sink`, mean weight of the first key; `dead`, whether all weight goes to the first key or is uniform. And
            `steps`, of the module.
        rows (`int`): How many rows of weights were looked at in each attention module.
        loss (`float`, *optional*): The model's mean loss, if the batches have labels.
    """

    layers: dict[str, dict[str, list]] = field(default_factory=dict)
    rows: int = 0
    loss: float | None = None

    def matrix(self, name: str) -> list[list[float]]:
        """One of the quantities, a row for each attention module, a column for each head."""
        return [layer[name] for layer in self.layers.values()]

    @property
    def share(self) -> float:
        """Share of the visible keys that get weight, in the whole model."""
        support = sum(sum(layer["support"]) for layer in self.layers.values())
        return support / max(sum(sum(layer["keys"]) for layer in self.layers.values()), 1e-12)

    @property
    def dead_heads(self) -> list[tuple[str, int]]:
        """Attention module and number of each dead head."""
        return [(name, i) for name, layer in self.layers.items() for i, dead in enumerate(layer["dead"]) if dead]

    def to_dict(self) -> dict[str, Any]:
        """As plain values that JSON can hold, with the summary."""
        return {**asdict(self), "share": self.share, "dead_heads": self.dead_heads}

    def to_json_string(self) -> str:
        """As JSON."""
        return json.dumps(self.to_dict(), indent=2) + "\n"


class _Counter(Observer):
    def __init__(self, rows: int, seed: int) -> None:
        self.rows = rows
        self.generator = torch.Generator().manual_seed(seed)
        self.own: dict[str, tuple[Setting, Setting]] = {}
        self.sums: dict[str, dict[str, torch.Tensor]] = {}

    def settings(self, name: str, retrieval: LayerRetrieval) -> tuple[Setting, Setting]:
        return retrieval()

    def observe(self, name: str, problem: RetrievalProblem) -> None:
        problem, visible = sampled(problem, self.rows, self.generator)
        weights = evaluate(problem, *self.own[name], return_weights=True, backend="reference").weights.float()
        heads = weights.shape[1]
        visible = visible.expand(-1, heads, -1)
        logs = torch.where(weights > 0, weights, torch.ones_like(weights)).log()
        counted = {
            "rows": torch.ones_like(visible),
            "support": (weights > 0).sum(-1),
            "keys": visible,
            "entropy": -(weights * logs).sum(-1),
            "most": visible.clamp_min(1).log(),
            "sink": weights[..., 0],
            # a row with one visible key has no choice, and says nothing of the head
            "free": (visible > 1).float(),
            "free_sink": weights[..., 0] * (visible > 1),
        }
        sums = self.sums.setdefault(name, {})
        for key, value in counted.items():
            total = value.masked_fill(visible == 0, 0).double().sum((0, 2)).cpu()
            sums[key] = sums[key] + total if key in sums else total


@torch.no_grad()
def sparsity_report(
    model: nn.Module, batches: Iterable[dict[str, Any]], *, rows: int = 256, seed: int = 0, progress: bool = False
) -> SparsityReport:
    """
    Run a sparse model and count.

    Args:
        model ([`~transformers.PreTrainedModel`]): A model that retrieves sparsely.
        batches (iterable of `dict`): Model inputs. Sums are kept, not weights: it may be long.
        rows (`int`, *optional*, defaults to 256): How many queries of a batch to look at in each attention module.
        seed (`int`, *optional*, defaults to 0): Chooses these queries.
        progress (`bool`, *optional*, defaults to `False`): Show a progress bar.

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
    counter = _Counter(rows, seed)
    losses, samples = [], []
    with evaluating(model), observed(model, counter) as sites:
        retrievals = {site.name: site.module.sparse_hopfield for site in sites}
        counter.own = {name: retrieval() for name, retrieval in retrievals.items()}
        for batch in tqdm(batches, desc="inspecting", disable=not progress):
            loss = getattr(model(**on_device(batch, model)), "loss", None)
            if loss is not None:
                losses.append(float(loss))
                samples.append(batch_size(batch))
    if not counter.sums:
        raise ValueError("batches is empty, or the model called none of its sparse attention modules.")
    report = SparsityReport(rows=int(max(sums["rows"].max() for sums in counter.sums.values())))
    if losses:
        report.loss = sum(loss * count for loss, count in zip(losses, samples, strict=True)) / sum(samples)
    for name, sums in counter.sums.items():
        count = sums["rows"].clamp_min(1)
        heads = len(count)
        beta, alpha = (torch.as_tensor(setting).reshape(-1).expand(heads) for setting in counter.own[name])
        uniform = sums["entropy"] >= _DEAD_ENTROPY * sums["most"]
        to_first = sums["free_sink"] >= _DEAD_SINK * sums["free"]
        report.layers[name] = {
            "alpha": [round(value, 6) for value in alpha.tolist()],
            "beta": [round(value, 6) for value in beta.tolist()],
            "steps": [retrievals[name].steps] * heads,
            "support": (sums["support"] / count).tolist(),
            "keys": (sums["keys"] / count).tolist(),
            "share": (sums["support"] / sums["keys"].clamp_min(1)).tolist(),
            "entropy": (sums["entropy"] / count).tolist(),
            "sink": (sums["sink"] / count).tolist(),
            "dead": ((uniform | to_first) & (sums["free"] > 0)).tolist(),
        }
    return report
