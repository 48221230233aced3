# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`SparsityLoggingCallback`: how sparse every layer is, while a model is trained, into any `report_to`."""

import dataclasses
import itertools
import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from accelerate.utils import extract_model_from_parallel
from torch import nn
from torch.utils.data import DataLoader, IterableDataset
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ..backends import Backend, RetrievalProblem, RetrievalResult, register_backend, select_backend, unregister_backend
from ..diagnostics.sparsity import sparsity_report
from ..integration.observation import sampled
from ..integration.refinement import evaluating, on_device
from ..integration.settings import LayerRetrieval
from ..layers import RetrievalParameters


if TYPE_CHECKING:
    from transformers import Trainer

# Reported for every layer, and as the mean of the layers.
QUANTITIES = ("support", "entropy", "zero_share")
_PREFIX = "sparsity"
_BACKEND = "sparsity_logging"


class SparsityLoggingCallback(TrainerCallback):
    """
    Logs, every so many steps, how the layers of a model use their keys.

    Each time, the model runs once more, in evaluation mode and without gradient, on the same few samples: curves are
    comparable from step to step, the training itself is not touched (no hook, no random number of it is used), and between
    two looks nothing is active. In a distributed run every process looks at the same samples and none talks to another,
    except where the model itself does (FSDP, ZeRO-3): there all do the same.

    What is logged: `sparsity/support` (mean number of keys with weight), `sparsity/entropy` (mean, in nats) and
    `sparsity/zero_share` (share of the visible keys with weight exactly zero), means of the layers, and the same as
    `sparsity/<layer>/support` and so on; `sparsity/alpha` and `sparsity/beta`, means of the heads.

    Args:
        every (`int`): Steps from one look to the next.
        samples (`int`, *optional*, defaults to 4): How many samples, the first of the training data.
        rows (`int`, *optional*, defaults to 64): How many of their queries to look at in each layer.
        batch (`dict`, *optional*): Model inputs to look at, instead of samples of the training data.
        trainer ([`~transformers.Trainer`], *optional*):
            Who logs. [`SparseHopfieldTrainer`] gives itself; any other is to be given here or as `callback.trainer`.

    Example:

    ```python
    >>> from hf_sparse_hopfield.training import SparsityLoggingCallback
    >>> callback = SparsityLoggingCallback(every=100)
    >>> # trainer = SparseHopfieldTrainer(..., callbacks=[callback])
    >>> # or: trainer = Trainer(...); trainer.add_callback(SparsityLoggingCallback(every=100, trainer=trainer))

    ```
    """

    def __init__(
        self,
        every: int,
        samples: int = 4,
        rows: int = 64,
        batch: dict[str, Any] | None = None,
        trainer: "Trainer | None" = None,
    ) -> None:
        for name, value in {"every": every, "samples": samples, "rows": rows}.items():
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be an integer of at least 1, got {value!r}.")
        self.every, self.samples, self.rows = every, samples, rows
        self.batch = batch
        self.trainer = trainer

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        train_dataloader: DataLoader | None = None,
        **kwargs,
    ) -> None:
        if self.trainer is None:
            raise ValueError(
                "SparsityLoggingCallback needs the trainer to log with: use SparseHopfieldTrainer, or set "
                "callback.trainer = trainer."
            )
        if self.batch is None:
            with own_random_numbers(args.seed):
                self.batch = first_samples(train_dataloader, self.samples)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: nn.Module, **kwargs
    ) -> None:
        if state.global_step % self.every == 0:
            with own_random_numbers(args.seed):
                metrics = sparsity_metrics(model, self.batch, self.rows)
            should_log = control.should_log
            self.trainer.log(metrics)
            control.should_log = (
                should_log  # logging takes the wish back, but the loss of this step is still to be logged
            )


def sparsity_metrics(model: nn.Module, batch: dict[str, Any], rows: int = 64) -> dict[str, float]:
    """
    How the layers of a model use their keys, as one flat dict for a log.

    Args:
        model (`torch.nn.Module`): A converted model, or one made of Hopfield layers; also wrapped (DDP, FSDP, compiled).
        batch (`dict`): Model inputs.
        rows (`int`, *optional*, defaults to 64): How many queries to look at in each layer.

    Returns:
        `dict[str, float]`: See [`SparsityLoggingCallback`].
    """
    model = extract_model_from_parallel(model, keep_torch_compile=False)
    layers = _retrieving_layers(model, batch, rows)
    if any(isinstance(module, LayerRetrieval) and module.patched_class for module in model.modules()):
        for name, layer in sparsity_report(model, [batch], rows=rows).layers.items():
            layers.setdefault(name, {**layer, "zero_share": [1 - share for share in layer["share"]]})
    if not layers:
        raise ValueError(f"{type(model).__name__} has no layer that retrieves sparsely: there is nothing to log.")
    metrics = {}
    for quantity in (*QUANTITIES, "alpha", "beta"):
        metrics[f"{_PREFIX}/{quantity}"] = _mean([_mean(layer[quantity]) for layer in layers.values()])
    for name, layer in layers.items():
        metrics |= {f"{_PREFIX}/{name}/{quantity}": _mean(layer[quantity]) for quantity in QUANTITIES}
    return metrics


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def first_samples(loader: DataLoader | None, count: int) -> dict[str, Any]:
    """
    The first samples of the data of a loader as one batch. The loader itself is not iterated.

    Args:
        loader (`torch.utils.data.DataLoader`): The loader of the training data, as the trainer made it.
        count (`int`): How many samples, at most.
    """
    if loader is None:
        raise ValueError("SparsityLoggingCallback has neither a batch nor training data; give it batch=...")
    dataset = loader.dataset
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__"):
        if iter(dataset) is dataset:
            raise ValueError(
                "SparsityLoggingCallback would take samples away from the training data, which can be gone through only "
                "once; give it batch=..."
            )
        samples = list(itertools.islice(iter(dataset), count))
    else:
        samples = [dataset[i] for i in range(min(count, len(dataset)))]
    return dict(loader.collate_fn(samples))


@contextmanager
def own_random_numbers(seed: int) -> Iterator[None]:
    """Within the context, random numbers start at `seed`; afterwards they go on as if nothing had been."""
    python_state, numpy_state = random.getstate(), np.random.get_state()
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=devices):
        random.seed(seed)
        np.random.seed(seed % 2**32)
        torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)


@torch.no_grad()
def _retrieving_layers(model: nn.Module, batch: dict[str, Any], rows: int) -> dict[str, dict[str, list[float]]]:
    """
    What the layers do that call `retrieve`: each asks its `RetrievalParameters` for beta and alpha, and retrieves next. In
    this order they are seen. (Outside of a layer's forward its parameters may be sharded.)
    """
    own = {
        module: (name.rpartition(".")[0] or name).removesuffix(".association_core")
        for name, module in model.named_modules()
        if isinstance(module, RetrievalParameters) and not getattr(module, "patched_class", None)
    }
    if not own:
        return {}
    counter = _LayerCounter(rows)
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
            model(**on_device(batch, model))
    return counter.layers()


class _LayerCounter:
    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.generator = torch.Generator().manual_seed(0)
        self.current: str | None = None
        self.settings: dict[str, dict[str, list[float]]] = {}
        self.sums: dict[str, torch.Tensor] = {}

    def watch(self, name: str):
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
