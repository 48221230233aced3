# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Refinement: gradient steps on beta (and searched alpha) of all heads together, on no weight of the model."""

import itertools
import json
import math
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from ..model_running import Batch, evaluating, main_output, on_device
from ..observation import HeadSettings, Observer, observed
from ..observed_problems import Setting
from ..progress import progress_bar
from ..retrieval_parameters import RetrievalParameters
from .comparison import counted_positions, divergence, takes_decoder_inputs
from .head_search import Choice
from .recipe import Refinement
from .resume import Record


class Refiner(Observer):
    """
    Settings as parameters: the beta of every head, and its length_power and alpha if these may change.

    Args:
        start (`dict[str, HeadSettings]`): Initial settings of each attention module.
        learn_alpha (`bool`): Whether alpha may change.
        learn_power (`Collection[str]`): The attention modules whose length_power may change.
    """

    def __init__(self, start: dict[str, HeadSettings], learn_alpha: bool, learn_power: Collection[str] = ()) -> None:
        self.log_beta = {
            name: torch.as_tensor(each.beta).float().log().requires_grad_() for name, each in start.items()
        }
        self.alpha = {name: each.alpha for name, each in start.items()}
        self.power = {name: each.length_power for name, each in start.items()}
        # A row of 16 times or a 16th of the usual length should move as fast as log beta does.
        self.tilt: dict[str, torch.Tensor] = {}
        for name in learn_power:
            power = torch.as_tensor(self.power[name], dtype=torch.float32).expand_as(self.log_beta[name])
            self.tilt[name] = (power * _TILT).requires_grad_()
        self.logit: dict[str, torch.Tensor] = {}
        if learn_alpha:
            for name, alpha in self.alpha.items():
                alpha = torch.as_tensor(alpha, dtype=torch.float32).clamp(1.01, 1.99).expand_as(self.log_beta[name])
                self.logit[name] = torch.logit(alpha - 1).requires_grad_()

    @classmethod
    def starting_from(
        cls, choice: dict[str, Choice], learn_alpha: bool, learn_power: Collection[str] = ()
    ) -> "Refiner":
        """
        Start from the result of a search.

        Args:
            choice (`dict[str, Choice]`): What the search chose for each attention module.
            learn_alpha (`bool`): Whether alpha may change.
            learn_power (`Collection[str]`, *optional*): The attention modules whose length_power may change.
        """
        start = {
            name: HeadSettings(chosen.beta, _one_or_all(chosen.alpha), _none_or_all(chosen.length_power))
            for name, chosen in choice.items()
        }
        return cls(start, learn_alpha, learn_power)

    def parameters(self) -> list[torch.Tensor]:
        """Return the tensors to optimise."""
        return [*self.log_beta.values(), *self.logit.values(), *self.tilt.values()]

    def settings(self, name: str, parameters: RetrievalParameters) -> HeadSettings:
        beta, alpha, power = self.current(name)
        beta, power = (
            x.expand(parameters.num_heads) if isinstance(x, torch.Tensor) and x.numel() == 1 else x
            for x in (beta, power)
        )
        return HeadSettings(beta, alpha, power)

    def current(self, name: str) -> HeadSettings:
        """Return the present settings of an attention module."""
        alpha = 1 + torch.sigmoid(self.logit[name]) if name in self.logit else self.alpha[name]
        power = self.tilt[name] / _TILT if name in self.tilt else self.power[name]
        return HeadSettings(self.log_beta[name].exp(), alpha, power)

    @torch.no_grad()
    def result(self) -> dict[str, HeadSettings]:
        """Return the present settings of all attention modules, without gradient."""
        return {name: self.current(name) for name in self.log_beta}


_TILT = 4.0


def _none_or_all(powers: torch.Tensor) -> Setting:
    return powers.float() if powers.any() else 0.0


def _one_or_all(values: torch.Tensor) -> Setting:
    return float(values) if values.numel() == 1 else values.float()


def refine(
    model: nn.Module,
    batches: Iterable[Batch],
    refiner: Refiner,
    refinement: Refinement,
    minimise: str,
    *,
    record: Record,
    progress: bool,
) -> list[float]:
    """
    Improve settings by gradient steps with Adam, on log beta and the logit of alpha. The learning rate falls to zero.

    Args:
        model ([`~transformers.PreTrainedModel`]): A sparse model. Its weights do not change.
        batches (iterable of `dict`): Model inputs, one batch per step; they start again when they end.
        refiner ([`Refiner`]): The settings.
        refinement ([`Refinement`]): Number of steps and their learning rate.
        minimise (`str`):
            `"loss"`: the loss of the model, which needs labels in the batches; `"dense"`: its divergence from the dense
            model, which needs none; `"auto"`: the loss if there are labels.
        record ([`Record`]): Keeps the state after each step. Refining resumes from the state it holds.
        progress (`bool`): Show progress.

    Returns:
        `list[float]`: The value that was minimised, for each step.
    """
    if minimise == "auto":
        minimise = "loss" if "labels" in next(iter(batches)) else "dense"
    steps, learning_rate = refinement
    optimizer = torch.optim.Adam(refiner.parameters(), lr=learning_rate, betas=(0.9, 0.99))
    # A state is of use only if it started from the same settings.
    begin = json.dumps([steps, learning_rate, minimise, [value.tolist() for value in refiner.parameters()]])
    losses = _resumed(record.state.get("refining"), begin, refiner, optimizer)
    done = len(losses)
    with (
        _frozen(model),
        evaluating(model),
        torch.enable_grad(),
        progress_bar("refining", total=steps, initial=done, enabled=progress) as bar,
    ):
        for step, batch in enumerate(itertools.islice(_endless(batches), done, steps), done):
            optimizer.param_groups[0]["lr"] = learning_rate * min(1.0, 1.25 * (1 - step / steps))
            loss = _value_to_minimise(model, on_device(batch, model), refiner, minimise)
            optimizer.zero_grad()
            loss.backward()
            if not math.isfinite(loss.item()):
                raise ValueError(f"refining met a loss of {loss.item()}: look for NaN or infinity in the batches.")
            optimizer.step()
            losses.append(loss.item())
            parameters = [parameter.detach() for parameter in refiner.parameters()]
            progress_made = {"begin": begin, "steps": step + 1, "losses": losses}
            record.save(refining={**progress_made, "parameters": parameters, "optimizer": optimizer.state_dict()})
            bar.set_postfix(loss=f"{losses[-1]:.4f}")
            bar.update()
    return losses


def _resumed(
    state: dict[str, Any] | None, begin: str, refiner: Refiner, optimizer: torch.optim.Optimizer
) -> list[float]:
    """Load the state of an interrupted refinement that began the same way, and return its losses."""
    if state is None or state["begin"] != begin:
        return []
    for parameter, value in zip(refiner.parameters(), state["parameters"], strict=True):
        parameter.data.copy_(value)
    optimizer.load_state_dict(state["optimizer"])
    return list(state["losses"])


def _value_to_minimise(model: nn.Module, batch: Batch, refiner: Refiner, minimise: str) -> torch.Tensor:
    with observed(model, refiner):
        outputs = model(**batch)
    if minimise == "loss":
        loss = getattr(outputs, "loss", None)
        if loss is None:
            raise ValueError("refine_on='loss' needs labels in the batches; refine_on='dense' does without.")
        return loss
    with torch.no_grad(), observed(model, Observer()):
        name, dense = main_output(model(**batch))
    counted = counted_positions(batch, decoder=takes_decoder_inputs(model))
    return divergence(name, dense, main_output(outputs)[1], counted)


@contextmanager
def _frozen(model: nn.Module) -> Iterator[None]:
    """Compute no gradients of weights."""
    learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in learned:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in learned:
            parameter.requires_grad_(True)


def _endless(batches: Iterable[Batch]) -> Iterator[Batch]:
    while True:
        empty = True
        for batch in batches:
            empty = False
            yield batch
        if empty:
            raise ValueError("batches is empty: there is nothing to refine on.")
