# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`calibrate`: beta (and alpha) of every head, chosen so that a sparse model does what the dense model did."""

import itertools
import json
import math
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from tqdm.auto import tqdm
from transformers import PreTrainedConfig, PreTrainedModel

from ..configuration import SparseHopfieldConfig, layer_matches
from .convert import to_sparse_hopfield
from .head_search import OBJECTIVES, HeadSearch, number_or_list
from .observation import Setting, observed
from .refinement import Batch, Refiner, compare_with_dense, evaluating, on_device, refine
from .settings import ATTENTION_NAME, LayerRetrieval, Site, attention_sites, bind, is_bound, number_of_heads


# The alphas that a search per head looks at; between them it interpolates. alpha = 1 needs no look: it is the dense head.
_SEARCHED_ALPHAS = (1.25, 1.5, 1.75, 2.0)
_BISECTIONS = 5


@dataclass
class CalibrationReport:
    """
    What [`calibrate`] found.

    Args:
        objective (`str`): What was minimised for each head.
        batches (`int`): How many batches were looked at.
        layers (`dict[str, dict[str, list[float]]]`):
            For each attention module, one number per head: `alpha`, `beta`, `error` (of the head's output, relative to its
            energy) and `support` (share of the visible keys that get weight).
        refined (`list[float]`): What refining minimised, step by step.
        budget (`dict[str, float]`): For a budget: dense and sparse loss (or divergence), and the error allowed per head.
        seconds (`float`): How long it took.
    """

    objective: str
    batches: int = 0
    layers: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    refined: list[float] = field(default_factory=list)
    budget: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0

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
            Later layers see the outputs of sparse earlier ones (with the best settings so far), not of dense ones.
        refine_steps (`int`, *optional*, defaults to 0):
            Afterwards, gradient steps on all betas (and searched alphas) together, one batch each. 30 are usually enough.
        refine_on (`str`, *optional*, defaults to `"auto"`):
            What these steps minimise: `"loss"`, the model's own on the `labels` in the batches; `"dense"`, the divergence
            from the dense model's outputs, without labels; `"auto"`: the loss if there are labels. For a language model
            the text itself is the labels, and the loss is the better choice: it also adapts the heads to the text.
        learning_rate (`float`, *optional*, defaults to 0.05): Of these steps.
        max_error (`float`, *optional*, defaults to 0.05):
            For `alpha="search"`: squared error of a head's output, relative to its energy, that is allowed.
        budget (`float`, *optional*):
            The sparsest model within this share of the dense loss (0.02 is 2 %): `max_error` is found by bisection, with
            alpha searched. Without labels, the divergence from the dense outputs is to stay below `budget`.
        rows (`int`, *optional*, defaults to 64): How many queries of a batch to look at in each attention module.
        search_batches (`int`, *optional*):
            Look at this many batches, then go on to refining, which uses all of them. Eight long ones are usually enough.
        seed (`int`, *optional*, defaults to 0): Chooses these queries.
        progress (`bool`, *optional*, defaults to `True`): Show a progress bar.
        resume_from (`str`, *optional*):
            A file. What the search has summed up is written there after each batch, and what refining has reached after
            each step; both are read from there at the start if it exists: an interrupted calibration with the same
            arguments goes on where it was.

    Returns:
        `tuple`: The model, and a [`CalibrationReport`].

    Example:

    ```python
    >>> import torch
    >>> from transformers import BertConfig, BertForMaskedLM
    >>> from hf_sparse_hopfield.integration.calibration import calibrate

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
    _check(
        alpha,
        objective,
        target_support,
        refine_steps,
        refine_on,
        learning_rate,
        max_error,
        budget,
        rows,
        search_batches,
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
        objective,
        target_support,
        layerwise,
        rows,
        seed,
    )
    report = CalibrationReport(objective)
    searched = batches if search_batches is None else _First(batches, search_batches)
    record = _Record(resume_from, search, seed)
    report.batches = _stream(model, searched, search, progress, record)
    sites = [site for site in sites if site.name in search.sums]  # the others were not called

    if budget is not None:
        max_error = _bisect(model, searched, search, sites, budget, report, progress)
    choice = _choose(search, sites, alpha, max_error)
    if refine_steps:
        against = _refine_target(refine_on, batches)
        choice = _refined(
            model, batches, choice, alpha == "search", refine_steps, learning_rate, against, report, record, progress
        )
        search = search.measuring(
            {name: _one_or_all(chosen.alpha) for name, chosen in choice.items()},
            {name: chosen.beta for name, chosen in choice.items()},
        )
        _stream(model, searched, search, progress, _Record(None, search, seed))
        choice = {name: chosen._replace(**search.expected(name)) for name, chosen in choice.items()}
    for name, chosen in choice.items():
        heads = max(len(chosen.alpha), len(chosen.beta))
        report.layers[name] = {key: value.expand(heads).tolist() for key, value in chosen._asdict().items()}
    apply_settings(model, {name: {"alpha": chosen.alpha, "beta": chosen.beta} for name, chosen in choice.items()})
    report.seconds = time.monotonic() - start
    return model, report


def apply_settings(model: PreTrainedModel, settings: dict[str, dict[str, torch.Tensor]]) -> None:
    """
    Write settings of single attention modules into the configuration of a sparse model, and give them to the modules.

    Args:
        model ([`~transformers.PreTrainedModel`]): A model that retrieves sparsely.
        settings (`dict[str, dict[str, torch.Tensor]]`): Path of an attention module to its alpha and beta, per head.
    """
    sites = [site for site in attention_sites(model) if site.is_sparse]
    updated: dict[int, SparseHopfieldConfig] = {}
    for config in _configs_with_settings(model):
        old = SparseHopfieldConfig.from_dict(getattr(config, ATTENTION_NAME))
        overrides = dict(old.overrides)
        for site in sites:
            if site.name in settings and site.settings == old:
                key = _shortest_name(site, sites, model)
                values = {name: number_or_list(value.reshape(-1)) for name, value in settings[site.name].items()}
                previous = overrides.pop(key, {})  # to the end: there it wins over patterns
                overrides[key] = {**previous, **values}
        updated[id(config)] = SparseHopfieldConfig.from_dict({**old, "overrides": overrides})
    for config in _configs_with_settings(model):
        setattr(config, ATTENTION_NAME, updated[id(config)])
    bind(model)
    for module in model.modules():
        if isinstance(module, LayerRetrieval):
            module.reset_parameters()


def _configs_with_settings(model: PreTrainedModel) -> list[PreTrainedConfig]:
    """Every configuration in the model that has settings; the model's own gets the defaults if none has any."""
    configs = {id(module.config): module.config for module in model.modules() if isinstance(module, PreTrainedModel)}
    for config in list(configs.values()):
        for name in config.sub_configs:
            part = getattr(config, name, None)
            if isinstance(part, PreTrainedConfig):
                configs[id(part)] = part
    found = [config for config in configs.values() if getattr(config, ATTENTION_NAME, None) is not None]
    if not found:
        setattr(model.config, ATTENTION_NAME, SparseHopfieldConfig())
        found = [model.config]
    return found


def _shortest_name(site: Site, sites: list[Site], model: PreTrainedModel) -> str:
    """The path of an attention module without the name of the base model, so that the base model alone finds it, too."""
    short = site.name.removeprefix(f"{model.base_model_prefix}.")
    matches = [other.name for other in sites if layer_matches(short, other.name)]
    return short if matches == [site.name] else site.name


def _check(
    alpha, objective, target_support, refine_steps, refine_on, learning_rate, max_error, budget, rows, search_batches
) -> None:
    if isinstance(alpha, str) and alpha != "search":
        raise ValueError(f"alpha must be a number in [1, 2], 'search' or None, got {alpha!r}.")
    if isinstance(alpha, (int, float)) and not 1 <= alpha <= 2:
        raise ValueError(f"alpha must lie in [1, 2] (1: softmax, 2: sparsemax), got {alpha}.")
    if objective not in OBJECTIVES:
        raise ValueError(f"objective must be one of {OBJECTIVES}, got {objective!r}.")
    if (objective == "support") != (target_support is not None):
        raise ValueError(
            f"target_support goes with objective='support', got target_support={target_support}, objective={objective!r}."
        )
    if target_support is not None and not 0 < target_support < 1:
        raise ValueError(f"target_support must lie in (0, 1), a share of the visible keys, got {target_support}.")
    if objective == "support" and alpha == "search":
        raise ValueError("alpha='search' looks for small errors; with objective='support' give alpha as a number.")
    if budget is not None and (alpha != "search" or not budget > 0):
        raise ValueError(f"budget must be positive and searches alpha itself, got budget={budget}, alpha={alpha!r}.")
    if refine_on not in ("auto", "loss", "dense"):
        raise ValueError(f"refine_on must be 'auto', 'loss' or 'dense', got {refine_on!r}.")
    counts = [("refine_steps", refine_steps, 0), ("rows", rows, 1)]
    for name, value, least in counts if search_batches is None else [*counts, ("search_batches", search_batches, 1)]:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}.")
    for name, value in (("max_error", max_error), ("learning_rate", learning_rate)):
        if not 0 < value < math.inf:
            raise ValueError(f"{name} must be a positive number, got {value!r}.")


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


class _Record:
    """
    A file from which an interrupted calibration goes on; nothing is kept if there is none.

    Args:
        path (`str`, *optional*): The file. What is there already is read, if it comes from the same calibration.
        search ([`HeadSearch`]), seed (`int`): What tells one calibration from another.
    """

    def __init__(self, path: str | os.PathLike | None, search: HeadSearch, seed: int) -> None:
        self.path = None if path is None else Path(path)
        alphas = {name: str(values) for name, values in search.alphas.items()}
        identity = json.dumps(
            [search.objective, search.target_support, search.layerwise, search.rows, seed, search.per_head, alphas]
        )
        self.state: dict[str, Any] = {"identity": identity}
        if self.path is not None and self.path.exists():
            self.state = torch.load(self.path, weights_only=True)
            if self.state["identity"] != identity:
                raise ValueError(
                    f"resume_from={str(path)!r} comes from a calibration with another model or other arguments."
                )

    def save(self, **state: Any) -> None:
        """Keep these parts of the state, besides the others."""
        if self.path is None:
            return
        self.state |= state
        beside = self.path.with_name(self.path.name + ".part")
        torch.save(self.state, beside)
        os.replace(beside, self.path)


def _stream(
    model: PreTrainedModel, batches: Iterable[Batch], search: HeadSearch, progress: bool, record: _Record
) -> int:
    """One pass; returns the number of batches."""
    done = record.state.get("batches", 0)
    if done:
        search.load_state_dict(record.state["search"])
    with evaluating(model), torch.no_grad(), observed(model, search):
        for number, batch in enumerate(_bar(batches, "calibrating", progress)):
            if number < done:
                continue
            model(**on_device(batch, model))
            done = number + 1
            record.save(search=search.state_dict(), batches=done)
    if not done:
        raise ValueError("batches is empty: there is nothing to calibrate on.")
    return done


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


class Choice(NamedTuple):
    """What was chosen for the heads of an attention module, one number each: relative error and support come with it."""

    alpha: torch.Tensor
    beta: torch.Tensor
    error: torch.Tensor
    support: torch.Tensor


def _choose(search: HeadSearch, sites: list[Site], alpha: float | str | None, max_error: float) -> dict[str, Choice]:
    choice = {}
    for site in sites:
        if alpha == "search":
            choice[site.name] = _largest_alphas(search, site.name, max_error)
        else:
            value, beta = search.best(site.name)
            alphas = torch.as_tensor(value, dtype=torch.float64).reshape(-1)
            choice[site.name] = Choice(alphas, beta, **search.expected(site.name))
    return choice


def _largest_alphas(search: HeadSearch, name: str, max_error: float) -> Choice:
    """For each head the largest alpha whose error is allowed, between the alphas that were tried."""
    count = len(_SEARCHED_ALPHAS)
    betas = torch.stack([search.best(name, index)[1] for index in range(count)])
    expected = [search.expected(name, index) for index in range(count)]
    errors, supports = (torch.stack([each[key] for each in expected]) for key in ("error", "support"))
    ones, zeros = torch.ones_like(betas[:1]), torch.zeros_like(betas[:1])
    alphas = torch.tensor([1.0, *_SEARCHED_ALPHAS], dtype=torch.float64)
    betas, errors, supports = (torch.cat(pair) for pair in ((ones, betas), (zeros, errors), (ones, supports)))
    errors = errors.cummax(0).values
    last = (
        (errors <= max_error).sum(0).clamp_max(count)
    )  # number of the first alpha that is too large, or the last one
    low, high = (last - 1).clamp_min(0)[None], last[None]
    span = (errors.gather(0, high) - errors.gather(0, low)).clamp_min(1e-30)
    share = ((max_error - errors.gather(0, low)) / span).clamp(0, 1)

    def between(values: torch.Tensor) -> torch.Tensor:
        return ((1 - share) * values.gather(0, low) + share * values.gather(0, high))[0]

    return Choice(
        between(alphas[:, None].expand_as(betas)), between(betas.log()).exp(), between(errors), between(supports)
    )


def _refined(
    model: PreTrainedModel,
    batches: Iterable[Batch],
    choice: dict[str, Choice],
    learn_alpha: bool,
    steps: int,
    learning_rate: float,
    against: str,
    report: CalibrationReport,
    record: "_Record",
    progress: bool,
) -> dict[str, Choice]:
    """A choice with its betas (and alphas) refined; error and support are those of before."""
    refiner = _refiner(choice, learn_alpha)
    # what an interrupted run has refined is of use only if it began from the same settings
    begin = json.dumps([steps, learning_rate, against, [chosen.beta.tolist() for chosen in choice.values()]])
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
    betas, alphas = refiner.result()
    return {
        name: chosen._replace(beta=betas[name], alpha=torch.as_tensor(alphas[name]).reshape(-1))
        for name, chosen in choice.items()
    }


def _refiner(choice: dict[str, Choice], learn_alpha: bool) -> Refiner:
    return Refiner(
        {name: chosen.beta for name, chosen in choice.items()},
        {name: _one_or_all(chosen.alpha) for name, chosen in choice.items()},
        learn_alpha,
    )


def _one_or_all(values: torch.Tensor) -> Setting:
    return float(values) if values.numel() == 1 else values.float()


def _refine_target(refine_on: str, batches: Iterable[Batch]) -> str:
    if refine_on != "auto":
        return refine_on
    return "loss" if "labels" in next(iter(batches)) else "dense"


def _bisect(
    model: PreTrainedModel,
    batches: Iterable[Batch],
    search: HeadSearch,
    sites: list[Site],
    budget: float,
    report: CalibrationReport,
    progress: bool,
) -> float:
    """The largest error per head with which the model stays within the budget."""
    low, high = math.log(1e-4), math.log(1.0)
    best: dict[str, float] | None = None
    for _ in _bar(range(_BISECTIONS), "searching within the budget", progress):
        middle = (low + high) / 2
        choice = _choose(search, sites, "search", math.exp(middle))
        compared = compare_with_dense(model, batches, _refiner(choice, learn_alpha=False))
        dense, sparse = compared.get("dense_loss"), compared.get("sparse_loss")
        within = sparse <= dense * (1 + budget) if dense is not None else compared["divergence"] <= budget
        if within:
            low, best = middle, {"max_error": math.exp(middle), **compared}
        else:
            high = middle
    report.budget = best or {}
    if best is None:  # not even nearly dense heads are: then as near as was tried
        report.budget = {"max_error": math.exp(low)}
    return report.budget["max_error"]
