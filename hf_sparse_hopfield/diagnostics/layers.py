# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`layer_sparsity`: how the heads of any sparse model use their keys, converted or made of Hopfield layers.

Settings are taken down while a layer runs, not before: elsewhere its parameters may be sharded (FSDP, ZeRO-3).
"""

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn

from ..backends import Backend, RetrievalProblem, RetrievalResult, register_backend, select_backend, unregister_backend
from ..evaluation import evaluating, on_device
from ..integration.binding import LayerRetrieval
from ..layers import RetrievalParameters
from ..observation import sampled
from .sparsity import sparsity_report


_BACKEND = "layer_sparsity"


@torch.no_grad()
def layer_sparsity(
    model: nn.Module, batches: Sequence[dict[str, Any]], rows: int = 64
) -> dict[str, dict[str, list[float]]]:
    """
    Run a sparse model and count.

    Args:
        model (`torch.nn.Module`): A converted model, or one made of Hopfield layers; not wrapped.
        batches (sequence of `dict`): Model inputs.
        rows (`int`, *optional*, defaults to 64): How many queries of a batch to look at in each layer.

    Returns:
        `dict[str, dict[str, list[float]]]`: For each layer, one entry per head of: `support`, mean number of keys with
        weight; `entropy`, mean in nats; `zero_share`, share of the visible keys with weight exactly zero; and one per head
        or one for all of `alpha` and `beta`.

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
    own = {
        module: (name.rpartition(".")[0] or name).removesuffix(".association_core")
        for name, module in model.named_modules()
        if isinstance(module, RetrievalParameters) and not getattr(module, "patched_class", None)
    }
    patched = any(isinstance(module, LayerRetrieval) and module.patched_class for module in model.modules())
    if not own and not patched:
        raise ValueError(f"{type(model).__name__} has no layer that retrieves sparsely: there is nothing to count.")
    layers = _count(model, batches, rows, own) if own else {}
    if patched:
        for name, layer in sparsity_report(model, batches, rows=rows).layers.items():
            layers.setdefault(name, {**layer, "zero_share": [1 - share for share in layer["share"]]})
    if not layers:
        raise ValueError("batches is empty, or the model called none of its sparse layers.")
    return layers


def _count(
    model: nn.Module, batches: Sequence[dict[str, Any]], rows: int, own: dict[nn.Module, str]
) -> dict[str, dict[str, list[float]]]:
    """Each layer asks its `RetrievalParameters` for beta and alpha, and retrieves next: in this order they are seen."""
    counter = _Counter(rows)
    with ExitStack() as undo:
        register_backend(
            Backend(_BACKEND, counter.run, lambda problem: None if counter.current else "nobody is looking on")
        )
        undo.callback(unregister_backend, _BACKEND)
        for module in own:
            undo.callback(module.register_forward_hook(counter.watch(own[module])).remove)
        for module in model.modules():
            if isinstance(getattr(module, "backend", None), str) and any(
                part in own for part in (module, *module.children())
            ):
                undo.callback(setattr, module, "backend", module.backend)
                module.backend = "auto"
        with evaluating(model):
            for batch in batches:
                model(**on_device(batch, model))
    return counter.layers()


class _Counter:
    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.generator = torch.Generator().manual_seed(0)
        self.current: str | None = None
        self.settings: dict[str, dict[str, list[float]]] = {}
        self.sums: dict[str, torch.Tensor] = {}

    def watch(self, name: str) -> Callable:
        def hook(module: RetrievalParameters, arguments: tuple, values: tuple) -> None:
            beta, alpha = (torch.as_tensor(value).reshape(-1).tolist() for value in values)
            self.current, self.settings[name] = name, {"alpha": alpha, "beta": beta}

        return hook

    def run(self, problem: RetrievalProblem) -> RetrievalResult:
        name, self.current = self.current, None
        smaller, visible = sampled(problem, self.rows, self.generator)
        smaller = dataclasses.replace(smaller, return_weights=True, return_trace=False, dropout=0.0)
        weights = select_backend(smaller, "reference")[0].run(smaller).weights.double()
        visible = visible.expand(-1, weights.shape[1], -1)
        logs = torch.where(weights > 0, weights, torch.ones_like(weights)).log()
        counted = (visible > 0, (weights > 0).sum(-1), -(weights * logs).sum(-1), visible)
        sums = torch.stack([value.masked_fill(visible == 0, 0).double().sum((0, 2)).cpu() for value in counted])
        self.sums[name] = self.sums[name] + sums if name in self.sums else sums
        return select_backend(problem)[0].run(problem)

    def layers(self) -> dict[str, dict[str, list[float]]]:
        result = {}
        for name, (count, support, entropy, keys) in self.sums.items():
            result[name] = {
                **self.settings[name],
                "support": (support / count.clamp_min(1)).tolist(),
                "entropy": (entropy / count.clamp_min(1)).tolist(),
                "zero_share": (1 - support / keys.clamp_min(1)).tolist(),
            }
        return result
