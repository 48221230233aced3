# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`calibrate`: beta (and alpha) of every head, chosen so that a sparse model does what the dense model did."""

import dataclasses
import itertools
import json
import math
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import nn
from tqdm.auto import tqdm
from transformers import PreTrainedModel
from transformers.utils import logging

from ..integration.binding import (
    ATTENTION_NAME,
    LayerRetrieval,
    Site,
    attention_sites,
    is_bound,
    number_of_heads,
    shortened,
)
from ..integration.convert import to_sparse_hopfield
from ..integration.live_settings import apply_settings
from ..observation import Observer, Setting, observed
from .head_search import Choice, HeadSearch, SearchOptions
from .refinement import Batch, Refiner, compare_with_dense, evaluating, mean_loss, on_device, refine
from .resume import Record, weights_fingerprint


logger = logging.get_logger(__name__)

# The alphas that a search per head looks at; between them it interpolates. alpha = 1 needs no look: it is the dense head.
_SEARCHED_ALPHAS = (1.25, 1.5, 1.75, 2.0)
_BISECTIONS = 5
_SMALLEST_ERROR = 1e-4
# A head misses its target support if it is off by more than this share of it.
_SUPPORT_TOLERANCE = 0.25


@dataclass
class CalibrationReport:
    """
    What [`calibrate`] found.

    Args:
        objective (`str`): What was minimised for each head.
        batches (`int`): How many batches were looked at.
        layers (`dict[str, dict[str, list[float]]]`):
            For each attention module, one number per head: `alpha`, `beta`, `error` (of the head's output, relative to its
            energy; with the objective `"kl"`, the mean divergence of a row in nats) and `support` (share of the visible
            keys that get weight). After refining they are those of the refined settings.
        refined (`list[float]`): What refining minimised, step by step.
        budget (`dict[str, float]`): For a budget: dense and sparse loss (or divergence), and the error allowed per head.
        warnings (`list[str]`): What was asked for and is not wholly done.
        seconds (`float`): How long it took.
    """

    objective: str
    batches: int = 0
    layers: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    refined: list[float] = field(default_factory=list)
    budget: dict[str, float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def warn(self, message: str) -> None:
        """Say it, and note that it was said."""
        logger.warning(message)
        self.warnings.append(message)

    def mean(self, name: str) -> float:
        """Mean over all heads of `"alpha"`, `"beta"`, `"error"` or `"support"`."""
        values = [value for layer in self.layers.values() for value in layer[name]]
        return sum(values) / len(values)

    def to_dict(self) -> dict:
        """As plain values that JSON can hold."""
        return asdict(self)

    def save(self, path: str | os.PathLike) -> None:
        """Write it as JSON."""
        Path(path).write_text(json.dumps(self.to_dict(), indent=2) + "\n", encoding="utf-8")


def calibrate(
    model: PreTrainedModel,
    batches: Iterable[Batch],
    *,
    alpha: float | str | None = None,
    objective: str = "output",
    target_support: float | None = None,
    layerwise: bool = False,
    refine_steps: int = 0,
    refine_on: str = "auto",
    learning_rate: float = 0.05,
    max_error: float = 0.05,
    budget: float | None = None,
    rows: int = 64,
    search_batches: int | None = None,
    seed: int = 0,
    progress: bool = True,
    resume_from: str | os.PathLike | None = None,
) -> tuple[PreTrainedModel, CalibrationReport]:
    """
    Choose beta (and alpha) of every head on a few unlabelled batches, so that the sparse model does what the dense one did.

    The batches stream by once: on what each head retrieves in the dense model, several betas are tried, and sums over rows
    are kept. No weight of the model changes. The settings end up in the model's configuration (as the initial values of
    what is learned, which is set to them), so they are saved with it.

    Args:
        model ([`~transformers.PreTrainedModel`]):
            A sparse model, or a dense one, which is converted with [`to_sparse_hopfield`]. It is changed in place.
        batches (iterable of `dict`):
            Model inputs. `refine_steps` and `budget` go through them again, so they need a list or a data loader.
        alpha (`float` or `str`, *optional*):
            A number for all heads; `"search"` for each head's own, the largest in [1, 2] whose output error stays below
            `max_error`; `None` for what the model has already (sparsemax, if it was dense).
        objective (`str`, *optional*, defaults to `"output"`):
            `"output"`: squared error of the head's output; `"kl"`: KL divergence of the sparse from the dense weights;
            `"support"`: the betas that give weight to the share `target_support` of the visible keys.
        target_support (`float`, *optional*): In (0, 1), for `objective="support"`.
        layerwise (`bool`, *optional*, defaults to `False`):
            Later layers see the outputs of sparse earlier ones (with the best settings so far), not of dense ones. A
            budget searches alpha afterwards: until then, earlier layers keep to `max_error`.
        refine_steps (`int`, *optional*, defaults to 0):
            Afterwards, gradient steps on all betas (and searched alphas) together, one batch each. 30 are usually enough.
        refine_on (`str`, *optional*, defaults to `"auto"`):
            What these steps minimise: `"loss"`, the model's own on the `labels` in the batches; `"dense"`, the divergence
            from the dense model's outputs, without labels; `"auto"`: the loss if there are labels. For a language model
            the text itself is the labels, and the loss is the better choice: it also adapts the heads to the text.
        learning_rate (`float`, *optional*, defaults to 0.05): Of these steps.
        max_error (`float`, *optional*, defaults to 0.05):
            For `alpha="search"`: squared error of a head's output, relative to its energy, that is allowed; with
            `objective="kl"`, the mean divergence of a row in nats.
        budget (`float`, *optional*):
            The sparsest model within this share of the dense loss (0.02 is 2 %): `max_error` is found by bisection, with
            alpha searched. Without labels, the divergence from the dense outputs is to stay below `budget`. One that even
            nearly dense heads exceed is an error.
        rows (`int`, *optional*, defaults to 64): How many queries of a batch to look at in each attention module.
        search_batches (`int`, *optional*):
            Look at this many batches, then go on to refining, which uses all of them. Eight long ones are usually enough.
        seed (`int`, *optional*, defaults to 0): Chooses these queries.
        progress (`bool`, *optional*, defaults to `True`): Show a progress bar.
        resume_from (`str`, *optional*):
            A file. What the search has summed up is written there after each batch, and what a budget or refining has
            reached after each step; it is read from there at the start if it exists: an interrupted calibration of the
            same model with the same data and arguments goes on where it was. Another one is refused.

    Returns:
        `tuple`: The model, and a [`CalibrationReport`].

    Example:

    ```python
    >>> import torch
    >>> from transformers import BertConfig, BertForMaskedLM
    >>> from hf_sparse_hopfield.calibration.calibrate import calibrate

    >>> model = BertForMaskedLM(BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, vocab_size=100))
    >>> batches = [{"input_ids": torch.randint(0, 100, (2, 16))} for _ in range(3)]
    >>> model, report = calibrate(model, batches, alpha=1.5, progress=False)
    >>> len(model.config.sparse_hopfield.overrides["encoder.layer.0.attention.self"]["beta"])
    4

    ```
    """
    start = time.monotonic()
    if budget is not None and alpha is None:
        alpha = "search"
    options = SearchOptions(objective, target_support, layerwise, max_error, rows, seed)
    _check(
        alpha=alpha,
        objective=objective,
        refine_steps=refine_steps,
        refine_on=refine_on,
        learning_rate=learning_rate,
        budget=budget,
        search_batches=search_batches,
    )
    if (refine_steps or budget is not None) and iter(batches) is batches:
        raise TypeError(
            "batches is an iterator, which can be gone through only once; refine_steps and budget need a list or a data loader."
        )
    if not is_bound(model):
        model = to_sparse_hopfield(model, None if alpha in (None, "search") else {"alpha": alpha})
    sites = [
        site for site in attention_sites(model) if isinstance(getattr(site.module, ATTENTION_NAME, None), nn.Module)
    ]
    search = HeadSearch(
        {site.name: _alphas(site.module.sparse_hopfield, alpha) for site in sites},
        {site.name: _has_heads(site) for site in sites},
        options,
    )
    report = CalibrationReport(objective)
    searched = batches if search_batches is None else _First(batches, search_batches)
    record = Record(resume_from, _identity(model, search, search_batches) if resume_from is not None else {})
    report.batches = _stream(model, searched, search, progress, record)
    reached = [site.name for site in sites if site.name in search.sums]
    _check_reached(report, [site.name for site in sites], reached)

    if budget is not None:
        report.budget = _bisect(model, searched, search, reached, budget, record, progress)
        max_error = report.budget["max_error"]
    choice = {name: search.choose(name, max_error) for name in reached}
    if target_support is not None:
        _check_support(report, choice, target_support)
    if refine_steps:
        refiner = _refiner(choice, alpha == "search")
        _refine(model, batches, refiner, (refine_steps, learning_rate, refine_on), report, record, progress)
        betas, alphas = refiner.result()
        search = search.measuring(alphas, betas)
        _stream(model, searched, search, progress, Record(None, {}))
        choice = {name: search.choose(name) for name in reached}
        if budget is not None:
            outcome = _outcome(model, searched, refiner, report.budget.get("dense_loss"))
            report.budget |= outcome
            if not _within(outcome, budget):
                report.warn(f"budget={budget} was kept by the search, but after refining it is exceeded: {outcome}.")
    for name, chosen in choice.items():
        heads = max(len(chosen.alpha), len(chosen.beta))
        report.layers[name] = {key: value.expand(heads).tolist() for key, value in chosen._asdict().items()}
    apply_settings(model, {name: {"alpha": chosen.alpha, "beta": chosen.beta} for name, chosen in choice.items()})
    report.seconds = time.monotonic() - start
    return model, report


def _check(*, alpha, objective, refine_steps, refine_on, learning_rate, budget, search_batches) -> None:
    if isinstance(alpha, str) and alpha != "search":
        raise ValueError(f"alpha must be a number in [1, 2], 'search' or None, got {alpha!r}.")
    if isinstance(alpha, (int, float)) and not 1 <= alpha <= 2:
        raise ValueError(f"alpha must lie in [1, 2] (1: softmax, 2: sparsemax), got {alpha}.")
    if objective == "support" and alpha == "search":
        raise ValueError("alpha='search' looks for small errors; with objective='support' give alpha as a number.")
    if budget is not None and (alpha != "search" or not budget > 0):
        raise ValueError(f"budget must be positive and searches alpha itself, got budget={budget}, alpha={alpha!r}.")
    if refine_on not in ("auto", "loss", "dense"):
        raise ValueError(f"refine_on must be 'auto', 'loss' or 'dense', got {refine_on!r}.")
    for name, value, least in (("refine_steps", refine_steps, 0), ("search_batches", search_batches, 1)):
        if name == "search_batches" and value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}.")
    if not 0 < learning_rate < math.inf:
        raise ValueError(f"learning_rate must be a positive number, got {learning_rate!r}.")


def _identity(model: PreTrainedModel, search: HeadSearch, search_batches: int | None) -> dict[str, str]:
    """What a search goes by. `max_error` matters to it only if other layers see what was chosen."""
    options = dataclasses.asdict(search.options)
    if not search.options.layerwise:
        del options["max_error"]
    options |= {"alpha": search.alphas, "heads": search.per_head, "search_batches": search_batches}
    return {"weights": weights_fingerprint(model), **{name: str(value) for name, value in options.items()}}


def _check_reached(report: CalibrationReport, names: list[str], reached: list[str]) -> None:
    if not reached:
        raise ValueError(f"the batches reach none of the {len(names)} sparse attention modules: {shortened(names)}.")
    missed = [name for name in names if name not in reached]
    if missed:
        report.warn(
            f"the batches do not reach {len(missed)} of the {len(names)} sparse attention modules, which keep the settings "
            f"they had: {shortened(missed)}. Give batches with inputs for them, too, or leave them dense (`layers`)."
        )


def _check_support(report: CalibrationReport, choice: dict[str, Choice], target: float) -> None:
    shares = [share for chosen in choice.values() for share in chosen.support.tolist()]
    missed = [share for share in shares if abs(share - target) > _SUPPORT_TOLERANCE * target]
    if missed:
        report.warn(
            f"target_support={target} is not reached by {len(missed)} of {len(shares)} heads with any beta that was tried: "
            f"they use {min(missed):.3g} to {max(missed):.3g} of the visible keys."
        )


def _has_heads(site: Site) -> bool:
    """Whether an attention module can have one setting per head."""
    return number_of_heads(site) is not None and (site.kind.registry or site.kind.per_head)


def _alphas(retrieval: LayerRetrieval, alpha: float | str | None) -> list[Setting]:
    if alpha == "search":
        return list(_SEARCHED_ALPHAS)
    if alpha is not None:
        return [float(alpha)]
    own = retrieval()[1]
    return [own.detach().cpu() if isinstance(own, torch.Tensor) else own]


def _stream(
    model: PreTrainedModel, batches: Iterable[Batch], search: HeadSearch, progress: bool, record: Record
) -> int:
    """One pass; returns the number of batches."""
    done = record.state.get("batches", 0)
    if done:
        search.load_state_dict(record.state["search"])
    count = 0
    with evaluating(model), torch.no_grad(), observed(model, search):
        for count, batch in enumerate(_bar(batches, "calibrating", progress), 1):
            inputs = on_device(batch, model)
            if count == 1:
                record.check_first_batch(batch)
            if count > done:
                model(**inputs)
                record.save(search=search.state_dict(), batches=count)
    if not count:
        raise ValueError("batches is empty: there is nothing to calibrate on.")
    if count < done:
        raise ValueError(f"resume_from={str(record.path)!r} has seen {done} batches, but there are only {count} now.")
    return count


class _First:
    """The first few of some batches."""

    def __init__(self, batches: Iterable[Batch], count: int) -> None:
        self.batches, self.count = batches, count

    def __len__(self) -> int:
        return min(self.count, len(self.batches)) if hasattr(self.batches, "__len__") else self.count

    def __iter__(self) -> Iterator[Batch]:
        return itertools.islice(iter(self.batches), self.count)


def _bar(batches: Iterable[Batch], description: str, progress: bool) -> Iterator[Batch]:
    total = len(batches) if hasattr(batches, "__len__") else None
    return iter(tqdm(batches, desc=description, total=total, disable=not progress))


def _refine(
    model: PreTrainedModel,
    batches: Iterable[Batch],
    refiner: Refiner,
    how: tuple[int, float, str],
    report: CalibrationReport,
    record: Record,
    progress: bool,
) -> None:
    """Refine settings; `how` is the number of steps, the learning rate and what to minimise."""
    steps, learning_rate, against = how
    if against == "auto":
        against = "loss" if "labels" in next(iter(batches)) else "dense"
    # what an interrupted run has refined is of use only if it began from the same settings
    begin = json.dumps([steps, learning_rate, against, [value.tolist() for value in refiner.parameters()]])
    before = record.state.get("refining")
    before = before if before is not None and before["begin"] == begin else None
    report.refined = list(before["losses"]) if before else []
    with tqdm(total=steps, initial=len(report.refined), desc="refining", disable=not progress) as bar:

        def note(loss: float, state: dict) -> None:
            report.refined.append(loss)
            record.save(refining={**state, "begin": begin, "losses": report.refined})
            bar.set_postfix(loss=f"{loss:.4f}")
            bar.update()

        refine(model, batches, refiner, steps, learning_rate, against, note, before)


def _refiner(choice: dict[str, Choice], learn_alpha: bool) -> Refiner:
    return Refiner(
        {name: chosen.beta for name, chosen in choice.items()},
        {name: _one_or_all(chosen.alpha) for name, chosen in choice.items()},
        learn_alpha,
    )


def _one_or_all(values: torch.Tensor) -> Setting:
    return float(values) if values.numel() == 1 else values.float()


def _bisect(
    model: PreTrainedModel,
    batches: Iterable[Batch],
    search: HeadSearch,
    names: list[str],
    budget: float,
    record: Record,
    progress: bool,
) -> dict[str, float]:
    """The largest error per head with which the model stays within the budget, as `max_error`, and what it leads to."""
    before = record.state.get("bisection", {})
    tried = list(before["tried"]) if before.get("budget") == budget else []
    dense_loss = tried[0].get("dense_loss") if tried else mean_loss(model, batches, Observer())
    low, high = math.log(_SMALLEST_ERROR), math.log(1.0)
    best: dict[str, float] = {}
    for number in _bar(range(_BISECTIONS), "searching within the budget", progress):
        middle = (low + high) / 2
        if number == len(tried):
            choice = {name: search.choose(name, math.exp(middle)) for name in names}
            tried.append(_outcome(model, batches, _refiner(choice, learn_alpha=False), dense_loss))
            record.save(bisection={"budget": budget, "tried": tried})
        if _within(tried[number], budget):
            low, best = middle, {"max_error": math.exp(middle), **tried[number]}
        else:
            high = middle
    if not best:
        raise ValueError(
            f"budget={budget} cannot be kept: with an error of {math.exp(high):.2g} per head, which is nearly dense, it is "
            f"exceeded ({tried[-1]}). Allow more, or use the dense model."
        )
    return best


def _outcome(
    model: PreTrainedModel, batches: Iterable[Batch], refiner: Refiner, dense_loss: float | None
) -> dict[str, float]:
    """What a budget is measured by: both losses, or without labels the divergence from the dense model."""
    if dense_loss is None:
        return compare_with_dense(model, batches, refiner)
    return {"dense_loss": dense_loss, "sparse_loss": mean_loss(model, batches, refiner)}


def _within(outcome: dict[str, float], budget: float) -> bool:
    if "dense_loss" in outcome:
        return outcome["sparse_loss"] <= outcome["dense_loss"] * (1 + budget)
    return outcome["divergence"] <= budget
