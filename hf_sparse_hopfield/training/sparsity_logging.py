# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`SparsityLoggingCallback`: logs during training how sparse each layer is, to any `report_to`."""

import itertools
import random
from collections.abc import Iterator, Sized
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from accelerate.utils import extract_model_from_parallel
from torch import nn
from torch.utils.data import DataLoader, IterableDataset
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ..checks import check_integer
from ..diagnostics.sparsity import layer_sparsity


if TYPE_CHECKING:
    from transformers import Trainer

# Logged for each layer, and as the mean over the layers.
QUANTITIES = ("support", "entropy", "zero_share")
_PREFIX = "sparsity"


class SparsityLoggingCallback(TrainerCallback):
    """
    Logs, every few steps, how the layers of a model use their keys.

    For each log the model runs once more, in evaluation mode and without gradient, on the same few samples, so the curves
    are comparable from step to step. Training is not affected: there is no hook between two logs, and the random numbers
    are restored. In a distributed run each process uses the same samples, and processes communicate only if the model
    itself does (FSDP, ZeRO-3).

    Logged are `sparsity/support` (mean number of keys with weight), `sparsity/entropy` (mean, in nats) and
    `sparsity/zero_share` (share of the visible keys with weight exactly zero) as means over the layers, and for each layer
    as `sparsity/<layer>/support` and so on; `sparsity/alpha` and `sparsity/beta` are means over layers and heads.

    Args:
        every (`int`): Number of steps between two logs.
        samples (`int`, *optional*, defaults to 4): Number of samples, taken from the start of the training data.
        rows (`int`, *optional*, defaults to 64): Number of their queries to use in each layer.
        batch (`dict`, *optional*): Model inputs to use instead of training data.
        trainer ([`~transformers.Trainer`], *optional*):
            The trainer that logs. [`SparseHopfieldTrainer`] sets itself; pass any other here or as `callback.trainer`.

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
            check_integer(name, value)
        self.every, self.samples, self.rows = every, samples, rows
        self.batch = batch
        self.trainer = trainer

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        train_dataloader: DataLoader | None = None,
        **kwargs: Any,
    ) -> None:
        if self.trainer is None:
            raise ValueError(
                "SparsityLoggingCallback needs a trainer that logs: use SparseHopfieldTrainer, or set "
                "callback.trainer = trainer."
            )
        if self.batch is None:
            with own_random_numbers(args.seed):
                self.batch = first_samples(train_dataloader, self.samples)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if state.global_step % self.every == 0 and self.trainer is not None and self.batch is not None:
            with own_random_numbers(args.seed):
                metrics = sparsity_metrics(kwargs["model"], self.batch, self.rows)
            should_log = control.should_log
            self.trainer.log(metrics)
            control.should_log = should_log  # `log` resets it, but the loss of this step is not logged yet


def sparsity_metrics(model: nn.Module, batch: dict[str, Any], rows: int = 64) -> dict[str, float]:
    """
    Measure how the layers of a model use their keys, as one flat dict for a log.

    Args:
        model (`torch.nn.Module`): A converted model, or one made of Hopfield layers; also wrapped (DDP, FSDP, compiled).
        batch (`dict`): Model inputs.
        rows (`int`, *optional*, defaults to 64): Number of queries to use in each layer.

    Returns:
        `dict[str, float]`: See [`SparsityLoggingCallback`].
    """
    layers = layer_sparsity(extract_model_from_parallel(model, keep_torch_compile=False), [batch], rows)
    metrics = {f"{_PREFIX}/{quantity}": value for quantity, value in layer_means(layers).items()}
    for name, layer in layers.items():
        metrics |= {f"{_PREFIX}/{name}/{quantity}": _mean(layer[quantity]) for quantity in QUANTITIES}
    return metrics


def layer_means(layers: dict[str, dict[str, list[float]]]) -> dict[str, float]:
    """
    The mean of each quantity over the layers, and over the heads of each layer.

    Args:
        layers (`dict`): The result of [`layer_sparsity`].
    """
    return {
        quantity: _mean([_mean(layer[quantity]) for layer in layers.values()])
        for quantity in (*QUANTITIES, "alpha", "beta")
    }


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def first_samples(loader: DataLoader | None, count: int) -> dict[str, Any]:
    """
    Collate the first samples of a loader's dataset into one batch, without iterating over the loader.

    Args:
        loader (`torch.utils.data.DataLoader`): A loader made by the trainer.
        count (`int`): Maximum number of samples.
    """
    if loader is None:
        raise ValueError("SparsityLoggingCallback has neither a batch nor training data; give it batch=...")
    dataset = loader.dataset
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__"):
        if iter(dataset) is dataset:
            raise ValueError(
                "SparsityLoggingCallback would consume training data, which can be iterated only once; give it batch=..."
            )
        samples = list(itertools.islice(iter(dataset), count))
    else:
        samples = [dataset[i] for i in range(min(count, len(cast(Sized, dataset))))]
    return dict(loader.collate_fn(samples))


@contextmanager
def own_random_numbers(seed: int) -> Iterator[None]:
    """Seed the random numbers within the context, and restore their state afterwards."""
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
