# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Compare a sparse model with its dense twin.

The dense twin is the same model, observed with dense attention: there is no second copy of the weights.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
import torch.nn.functional as F
from torch import nn

from ..model_running import Batch, batch_size, evaluating, main_output, on_device
from ..observation import Observer, OwnSettings, observed
from ..progress import progress_bar
from .kl_divergence import kl_divergence


_NO_LABEL = -100  # transformers' mark of a position without a label


def takes_decoder_inputs(model: nn.Module) -> bool:
    """Whether the output of a model has the positions of a decoder that reads from an encoder."""
    return "decoder_input_ids" in inspect.signature(model.forward).parameters


def counted_positions(batch: Batch, *, decoder: bool) -> torch.Tensor | None:
    """
    Return which positions are no padding, `(batch, positions)`; `None` if all are.

    Args:
        batch (`dict`): Model inputs.
        decoder (`bool`): Whether to return the positions of the decoder of an encoder-decoder.
    """
    mask = batch.get("decoder_attention_mask" if decoder else "attention_mask")
    if mask is None and decoder and isinstance(batch.get("labels"), torch.Tensor):
        return batch["labels"] != _NO_LABEL
    return mask if isinstance(mask, torch.Tensor) else None


def mean_over(each: torch.Tensor, counted: torch.Tensor | None) -> torch.Tensor:
    """
    Return the mean over the positions that count.

    Args:
        each (`torch.Tensor` of shape `(batch, positions)`): A value for each position. Values of another shape all count.
        counted (`torch.Tensor` of the same shape, *optional*): From [`counted_positions`].
    """
    if counted is None or counted.shape != each.shape:
        return each.mean()
    # a padded row may hold anything, and 0 * NaN is NaN
    return each.masked_fill(counted == 0, 0).sum() / (counted != 0).sum().clamp_min(1)


def divergence(
    name: str, dense: torch.Tensor, sparse: torch.Tensor, counted: torch.Tensor | None = None
) -> torch.Tensor:
    """
    Measure how far a sparse output is from the dense one: the KL divergence of logits in nats, else the relative squared
    error.

    Args:
        name (`str`): Name of the output, from [`main_output`].
        dense (`torch.Tensor`): Output of the dense model, detached.
        sparse (`torch.Tensor`): Output of the sparse model.
        counted (`torch.Tensor`, *optional*): Which positions count, from [`counted_positions`].
    """
    if name == "logits":
        return mean_over(kl_divergence(dense, sparse), counted)
    error, energy = (x.float().square().sum(-1) for x in (sparse.float() - dense.float(), dense))
    return mean_over(error, counted) / mean_over(energy, counted)


@contextmanager
def twin(model: nn.Module) -> Iterator[nn.Module]:
    """The model with dense attention, until the context ends."""
    with observed(model, Observer()):
        yield model


@torch.no_grad()
def compare_with_dense(
    model: nn.Module,
    batches: Iterable[Batch],
    observer: Observer | None = None,
    dense: Callable[[], AbstractContextManager[nn.Module]] | None = None,
    *,
    progress: bool = False,
) -> dict[str, float]:
    """
    Run a sparse model and its dense twin on the same inputs.

    Args:
        model ([`~transformers.PreTrainedModel`]): A sparse model.
        batches (iterable of `dict`): Model inputs. If they have labels, losses are compared too.
        observer ([`Observer`], *optional*): Gives the settings of the sparse run. By default the model keeps its own.
        dense (`Callable`, *optional*): Gives the dense model, as a context. By default the model with dense attention.
        progress (`bool`, *optional*, defaults to `False`): Show progress.

    Returns:
        `dict`: `divergence` (KL divergence of the logits, or relative squared error of the hidden states), `cosine` (mean
        cosine similarity of the outputs), and with labels `dense_loss` and `sparse_loss`.
    """
    sums: dict[str, float] = {}
    count, decoder = 0, takes_decoder_inputs(model)
    with evaluating(model), progress_bar("comparing with the dense model", batches, enabled=progress) as bar:
        for batch in bar:
            batch = on_device(batch, model)
            with dense() if dense else twin(model) as teacher:
                expected = teacher(**batch)
            with observed(model, observer or OwnSettings()):
                sparse = model(**batch)
            name, dense_output = main_output(expected)
            sparse_output = main_output(sparse)[1]
            size = batch_size(batch)
            counted = counted_positions(batch, decoder=decoder)
            cosine = F.cosine_similarity(dense_output.float(), sparse_output.float(), dim=-1)
            values = {
                "divergence": divergence(name, dense_output, sparse_output, counted),
                "cosine": mean_over(cosine, counted),
            }
            if getattr(expected, "loss", None) is not None:
                values |= {"dense_loss": expected.loss, "sparse_loss": sparse.loss}
            for key, value in values.items():
                sums[key] = sums.get(key, 0.0) + float(value) * size
            count += size
    if not count:
        raise ValueError("batches is empty: there is nothing to compare on.")
    return {key: value / count for key, value in sums.items()}


@torch.no_grad()
def mean_loss(model: nn.Module, batches: Iterable[Batch], observer: Observer) -> float | None:
    """
    Compute the mean loss per sample of a sparse model, or `None` if the batches have no labels.

    Args:
        model ([`~transformers.PreTrainedModel`]): A sparse model.
        batches (iterable of `dict`): Model inputs.
        observer ([`Observer`]): Gives the settings; a plain [`Observer`] measures the dense twin.
    """
    total, count = 0.0, 0
    with evaluating(model), observed(model, observer):
        for batch in batches:
            loss = getattr(model(**on_device(batch, model)), "loss", None)
            if loss is None:
                return None
            total += float(loss) * batch_size(batch)
            count += batch_size(batch)
    return total / count
