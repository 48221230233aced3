# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`SparsityLoggingCallback`: how sparse every layer is, while a model is trained, into any `report_to`."""

import itertools
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from accelerate.utils import extract_model_from_parallel
from torch import nn
from torch.utils.data import DataLoader, IterableDataset
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ..diagnostics.sparsity import layer_sparsity


if TYPE_CHECKING:
    from transformers import Trainer

# Reported for every layer, and as the mean of the layers.
QUANTITIES = ("support", "entropy", "zero_share")
_PREFIX = "sparsity"


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
    layers = layer_sparsity(extract_model_from_parallel(model, keep_torch_compile=False), [batch], rows)
    metrics = {f"{_PREFIX}/{quantity}": value for quantity, value in layer_means(layers).items()}
    for name, layer in layers.items():
        metrics |= {f"{_PREFIX}/{name}/{quantity}": _mean(layer[quantity]) for quantity in QUANTITIES}
    return metrics


def layer_means(layers: dict[str, dict[str, list[float]]]) -> dict[str, float]:
    """
    One number for each quantity: the mean of the layers, and of the heads in each.

    Args:
        layers (`dict`): From [`layer_sparsity`].
    """
    return {
        quantity: _mean([_mean(layer[quantity]) for layer in layers.values()])
        for quantity in (*QUANTITIES, "alpha", "beta")
    }


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
