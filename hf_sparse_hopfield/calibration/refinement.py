# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""A sparse model beside its dense twin: how far apart they are, and beta and alpha that bring them together.

The dense twin is the same model, run with its attention observed and dense: there is no second copy of the weights.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from ..integration.binding import LayerRetrieval
from ..observation import Observer, Setting, observed


Batch = dict[str, Any]


def on_device(batch: Batch, model: nn.Module) -> Batch:
    """A batch where the model is. Anything but a mapping of inputs is refused."""
    if not hasattr(batch, "items"):
        raise TypeError(
            f"batches must yield dicts of model inputs (such as tokenizer(..., return_tensors='pt')), got {type(batch).__name__}."
        )
    device = next(model.parameters()).device
    return {key: value.to(device) if isinstance(value, torch.Tensor) else value for key, value in batch.items()}


def main_output(outputs: Any) -> tuple[str, torch.Tensor]:
    """What a model's outputs are compared by: the logits where there are any, else the first floating point tensor."""
    logits = getattr(outputs, "logits", None)
    if isinstance(logits, torch.Tensor):
        return "logits", logits
    named = [
        (str(name), value) for name, value in (outputs.items() if hasattr(outputs, "items") else enumerate(outputs))
    ]
    # tensors, and if there is none, the first of several (the feature maps of a backbone)
    for name, value in named + [
        (name, value[0]) for name, value in named if isinstance(value, (tuple, list)) and value
    ]:
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.ndim and name != "loss":
            return name, value
    raise ValueError(f"the model returns no tensor that could be compared, only {type(outputs).__name__}.")


def divergence(name: str, dense: torch.Tensor, sparse: torch.Tensor, batch: Batch) -> torch.Tensor:
    """
    How far the sparse output is from the dense one: for logits the KL divergence in nats, else the relative squared error.

    Args:
        name (`str`): What [`main_output`] calls it.
        dense (`torch.Tensor`): Output of the dense model, detached.
        sparse (`torch.Tensor`): Output of the sparse model.
        batch (`dict`): The inputs; what an `attention_mask` of the same length masks does not count.
    """
    if name == "logits":
        dense_log, sparse_log = dense.float().log_softmax(-1), sparse.float().log_softmax(-1)
        each = (dense_log.exp() * (dense_log - sparse_log)).sum(-1)
    else:
        each = (sparse.float() - dense.float()).square().sum(-1) / dense.float().square().sum(-1).mean()
    mask = batch.get("attention_mask")
    if isinstance(mask, torch.Tensor) and mask.shape == each.shape:
        return (each * mask).sum() / mask.sum().clamp_min(1)
    return each.mean()


class _Own(Observer):
    """The settings that the modules have by themselves."""

    def settings(self, name: str, retrieval: LayerRetrieval) -> tuple[Setting, Setting]:
        return retrieval()


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, and training mode again afterwards if that is how the model came."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


@torch.no_grad()
def compare_with_dense(
    model: nn.Module, batches: Iterable[Batch], observer: Observer | None = None
) -> dict[str, float]:
    """
    Run a sparse model and its dense twin on the same inputs.

    Args:
        model ([`~transformers.PreTrainedModel`]): A model that retrieves sparsely.
        batches (iterable of `dict`): Model inputs; with labels, losses are compared, too.
        observer ([`Observer`], *optional*): Decides on the settings of the sparse run, instead of the model.

    Returns:
        `dict`: `divergence` (KL of the logits, or relative squared error of the hidden states), `cosine` (mean, of the
        outputs), and with labels `dense_loss` and `sparse_loss`.
    """
    sums, count = {}, 0
    with evaluating(model):
        for batch in batches:
            batch = on_device(batch, model)
            with observed(model, Observer()):
                dense = model(**batch)
            with observed(model, observer or _Own()):
                sparse = model(**batch)
            name, dense_output = main_output(dense)
            sparse_output = main_output(sparse)[1]
            size = batch_size(batch)
            values = {
                "divergence": divergence(name, dense_output, sparse_output, batch),
                "cosine": F.cosine_similarity(dense_output.float(), sparse_output.float(), dim=-1).mean(),
            }
            if getattr(dense, "loss", None) is not None:
                values |= {"dense_loss": dense.loss, "sparse_loss": sparse.loss}
            for key, value in values.items():
                sums[key] = sums.get(key, 0.0) + float(value) * size
            count += size
    if not count:
        raise ValueError("batches is empty: there is nothing to compare on.")
    return {key: value / count for key, value in sums.items()}


@torch.no_grad()
def mean_loss(model: nn.Module, batches: Iterable[Batch], observer: Observer) -> float | None:
    """
    The loss of a sparse model on the labels in the batches, mean over the samples; `None` without labels.

    Args:
        model ([`~transformers.PreTrainedModel`]): A model that retrieves sparsely.
        batches (iterable of `dict`): Model inputs.
        observer ([`Observer`]): Decides on the settings; a plain [`Observer`] on the dense twin.
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


def batch_size(batch: Batch) -> int:
    """How many samples a batch has."""
    return next((value.shape[0] for value in batch.values() if isinstance(value, torch.Tensor) and value.ndim), 1)


class Refiner(Observer):
    """
    Settings as parameters: beta, and alpha where it may change, of every head.

    Args:
        betas (`dict[str, torch.Tensor]`): Of each attention module, to start from.
        alphas (`dict[str, float | torch.Tensor]`): Of each attention module.
        learn_alpha (`bool`): Whether alpha may change.
    """

    def __init__(self, betas: dict[str, torch.Tensor], alphas: dict[str, Setting], learn_alpha: bool) -> None:
        self.log_beta = {name: beta.float().log().requires_grad_() for name, beta in betas.items()}
        self.alpha = dict(alphas)
        self.logit: dict[str, torch.Tensor] = {}
        if learn_alpha:
            for name, alpha in alphas.items():
                alpha = torch.as_tensor(alpha, dtype=torch.float32).clamp(1.01, 1.99).expand_as(self.log_beta[name])
                self.logit[name] = torch.logit(alpha - 1).requires_grad_()

    def parameters(self) -> list[torch.Tensor]:
        """What is to be optimised."""
        return [*self.log_beta.values(), *self.logit.values()]

    def settings(self, name: str, retrieval: LayerRetrieval) -> tuple[Setting, Setting]:
        beta = self.log_beta[name].exp()
        beta = beta if beta.numel() > 1 else beta.expand(retrieval.num_heads)
        if name not in self.logit:
            return beta, self.alpha[name]
        return beta, 1 + torch.sigmoid(self.logit[name])

    def result(self) -> tuple[dict[str, torch.Tensor], dict[str, Setting]]:
        """Betas and alphas as they are now."""
        betas = {name: value.detach().exp() for name, value in self.log_beta.items()}
        return betas, self.alpha | {name: 1 + torch.sigmoid(value.detach()) for name, value in self.logit.items()}


def refine(
    model: nn.Module,
    batches: Iterable[Batch],
    refiner: Refiner,
    steps: int,
    learning_rate: float,
    against: str,
    report: Callable[[float, dict], None],
    state: dict | None = None,
) -> None:
    """
    Gradient steps on nothing but the settings.

    Args:
        model ([`~transformers.PreTrainedModel`]): A model that retrieves sparsely; its weights stay as they are.
        batches (iterable of `dict`): Model inputs; one batch a step, from the start again when they end.
        refiner ([`Refiner`]): The settings.
        steps (`int`): How many steps.
        learning_rate (`float`): Of Adam, on log beta and the logit of alpha; it falls to zero.
        against (`str`): `"loss"`: the model's own loss, for which batches need labels; `"dense"`: its divergence from the
            dense model, which needs none.
        report (`Callable`): Called after each step, with what was minimised and the state that another call can go on from.
        state (`dict`, *optional*): To go on from.
    """
    optimizer = torch.optim.Adam(refiner.parameters(), lr=learning_rate, betas=(0.9, 0.99))
    done = 0
    if state is not None:
        for parameter, value in zip(refiner.parameters(), state["parameters"], strict=True):
            parameter.data.copy_(value)
        optimizer.load_state_dict(state["optimizer"])
        done = state["steps"]
    frozen = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in frozen:
        parameter.requires_grad_(False)
    try:
        with evaluating(model), torch.enable_grad():
            for step, batch in enumerate(itertools.islice(_endless(batches), done, steps), done):
                optimizer.param_groups[0]["lr"] = learning_rate * min(1.0, 1.25 * (1 - step / steps))
                batch = on_device(batch, model)
                with observed(model, refiner):
                    outputs = model(**batch)
                if against == "loss":
                    loss = getattr(outputs, "loss", None)
                    if loss is None:
                        raise ValueError("refining on the loss needs labels in the batches; or use refine_on='dense'.")
                else:
                    with torch.no_grad(), observed(model, Observer()):
                        name, dense = main_output(model(**batch))
                    loss = divergence(name, dense, main_output(outputs)[1], batch)
                optimizer.zero_grad()
                loss.backward()
                if not math.isfinite(loss.item()):
                    raise ValueError(f"refining met a loss of {loss.item()}: look for NaN or infinity in the batches.")
                optimizer.step()
                parameters = [parameter.detach() for parameter in refiner.parameters()]
                now = {"steps": step + 1, "parameters": parameters, "optimizer": optimizer.state_dict()}
                report(loss.item(), now)
    finally:
        for parameter in frozen:
            parameter.requires_grad_(True)


def _endless(batches: Iterable[Batch]) -> Iterator[Batch]:
    while True:
        empty = True
        for batch in batches:
            empty = False
            yield batch
        if empty:
            raise ValueError("batches is empty: there is nothing to refine on.")
