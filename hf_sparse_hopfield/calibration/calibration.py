# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`calibrate`: choose beta (and alpha) of every head so that a sparse model does what the dense model did."""

import itertools
import os
import time
from collections.abc import Iterable, Iterator, Sized
from contextlib import ExitStack
from typing import Any, cast

import torch
from transformers import PreTrainedModel

from ..integration.binding import LayerRetrieval, has_bound_attention
from ..integration.convert import undoable_conversion
from ..integration.model_settings import apply_settings
from ..integration.sites import Site, attention_sites, number_of_heads, shortened
from ..model_running import Batch, evaluating, on_device
from ..observation import observed
from ..observed_problems import Setting
from ..progress import progress_bar
from .budget import Budget
from .head_search import Choice, HeadSearch
from .recipe import CalibrationOptions, Refinement
from .refinement import Refiner, refine
from .report import CalibrationReport
from .resume import Record, weights_fingerprint


# The alphas that a search per head tries; it interpolates between them. alpha = 1 is the dense head and needs no trial.
_SEARCHED_ALPHAS = (1.25, 1.5, 1.75, 2.0)
# A head misses its target support if it is off by more than this share of it.
_SUPPORT_TOLERANCE = 0.25
# The options that decide what a search sums up. The others may change when a calibration is resumed.
_IDENTIFYING = ("objective", "target_support", "layerwise", "lengths", "rows", "seed", "search_batches")


def calibrate(
    model: PreTrainedModel,
    batches: Iterable[Batch],
    options: CalibrationOptions | None = None,
    *,
    progress: bool = True,
    resume_from: str | os.PathLike | None = None,
    **overrides: Any,
) -> tuple[PreTrainedModel, CalibrationReport]:
    """
    Choose beta (and alpha) of every head on a few unlabelled batches, so that the sparse model does what the dense one did.

    A search tries several betas on what each head retrieves in the dense model; it keeps sums over rows and needs one
    pass. Refinement then takes a few gradient steps on all betas (and searched alphas) together. No weight of the model
    changes. The settings are written into the model's configuration, so they are saved with it; learned parameters are
    set to them.

    Args:
        model ([`~transformers.PreTrainedModel`]):
            A sparse model, or a dense one, which is converted as by [`to_sparse_hopfield`]. It is changed in place; if the
            calibration fails, it stays what it was.
        batches (iterable of `dict`):
            Model inputs. Refinement and a budget read them again, so they need a list or a data loader.
        options ([`CalibrationOptions`], *optional*): How to search and refine.
        progress (`bool`, *optional*, defaults to `True`): Show progress.
        resume_from (`str`, *optional*):
            A file that holds the state of the calibration. It is written after each batch of the search, and after each
            step of a budget or of refinement. If it exists at the start, an interrupted calibration of the same model with
            the same data and options resumes from it; the state of any other calibration is refused.
        **overrides:
            Fields of [`CalibrationOptions`], such as `alpha=1.5`, `objective="kl"` or `refine_steps=0`. They take
            precedence over `options`.

    Returns:
        `tuple`: The model, and a [`CalibrationReport`].

    Example:

    ```python
    >>> import torch
    >>> from transformers import BertConfig, BertForMaskedLM
    >>> from hf_sparse_hopfield import calibrate

    >>> model = BertForMaskedLM(BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, vocab_size=100))
    >>> batches = [{"input_ids": torch.randint(0, 100, (2, 16))} for _ in range(3)]
    >>> model, report = calibrate(model, batches, alpha=1.5, progress=False)
    >>> len(model.config.sparse_hopfield.overrides["encoder.layer.0.attention.self"]["beta"])
    4

    ```
    """
    start = time.monotonic()
    if not isinstance(options, CalibrationOptions | None):
        raise TypeError(f"options must be CalibrationOptions or None, got {options!r}; give single options by name.")
    options = (options or CalibrationOptions()).replaced(overrides)
    if isinstance(batches, Sized) and not len(batches):
        raise ValueError("batches is empty: there is nothing to calibrate on.")
    if (options.refines or options.budget is not None) and iter(batches) is batches:
        raise TypeError(
            "batches is an iterator, which can be read only once, but refinement and a budget read it again: give a list or "
            "a data loader. refine_steps=0 skips refinement."
        )
    with ExitStack() as undo:  # a dense model stays dense if the calibration fails
        if not has_bound_attention(model):
            settings = None if options.alpha in (None, "search") else {"alpha": options.alpha}
            undo.enter_context(undoable_conversion(model, settings))
        calibration = _Calibration(model, batches, options, resume_from, progress)
        calibration.search()
        choice = calibration.choose()
        if options.refines:
            choice = calibration.refine(choice)
        calibration.write(choice)
        undo.pop_all()
    calibration.report.seconds = time.monotonic() - start
    return model, calibration.report


class _Calibration:
    """
    The steps of [`calibrate`], and what they share.

    Args:
        model ([`~transformers.PreTrainedModel`]): A sparse model.
        batches, options, resume_from, progress: As for [`calibrate`].
    """

    def __init__(
        self,
        model: PreTrainedModel,
        batches: Iterable[Batch],
        options: CalibrationOptions,
        resume_from: str | os.PathLike | None,
        progress: bool,
    ) -> None:
        self.model, self.batches, self.options, self.progress = model, batches, options, progress
        self.searched = batches if options.search_batches is None else _First(batches, options.search_batches)
        sites = _sparse_sites(model)
        self.heads = HeadSearch(
            {site.name: _alphas_to_try(site, options) for site in sites},
            {site.name: _has_heads(site) for site in sites},
            options,
        )
        self.record = Record(resume_from, {} if resume_from is None else _identity(model, self.heads))
        self.report = CalibrationReport(options.objective)

    def search(self) -> None:
        """Let the heads see the batches."""
        self.report.batches = self._stream("calibrating", self.heads, self.record)
        self.report.longest = self.heads.longest
        self._check_reached()

    def choose(self) -> dict[str, Choice]:
        """Choose the best settings for each attention module, within the budget if there is one."""
        max_error = self.options.max_error
        if self.options.budget is not None:
            self.report.budget = self._budget(self.options.budget).largest_error(
                self.heads, self.record, self.progress
            )
            max_error = self.report.budget["max_error"]
        choice = self.heads.choose_all(max_error)
        if self.options.target_support is not None:
            self._check_support(choice, self.options.target_support)
        return choice

    def refine(self, choice: dict[str, Choice]) -> dict[str, Choice]:
        """Improve the settings together, and measure the result."""
        refiner = Refiner.starting_from(
            choice, self.options.searches_alpha, list(filter(self.heads.lengths_vary, choice))
        )
        with torch.autocast(self.model.device.type, torch.bfloat16, enabled=self.options.bf16):
            self.report.refined = refine(
                self.model,
                self.batches,
                refiner,
                planned_refinement(self.model, self.options),
                self.options.refine_on,
                record=self.record,
                progress=self.progress,
            )
        measuring = self.heads.measuring(refiner.result())
        self._stream("measuring", measuring, Record(None, {}))
        if self.options.budget is not None:
            self._check_budget(self._budget(self.options.budget), refiner)
        return {name: measuring.choose(name) for name in choice}

    def write(self, choice: dict[str, Choice]) -> None:
        """Write the settings into the model and the report."""
        for name, chosen in choice.items():
            heads = max(len(chosen.alpha), len(chosen.beta))
            self.report.layers[name] = {key: value.expand(heads).tolist() for key, value in chosen._asdict().items()}
        settings = {
            name: {"alpha": chosen.alpha, "beta": chosen.beta, "length_power": _one(chosen.length_power)}
            for name, chosen in choice.items()
        }
        apply_settings(self.model, settings)

    def _stream(self, description: str, search: HeadSearch, record: Record) -> int:
        """Show the batches to a search, once; return their number."""
        done = record.state.get("batches", 0)
        if done:
            search.load_state_dict(record.state["search"])
        count = 0
        with (
            evaluating(self.model),
            torch.no_grad(),
            observed(self.model, search),
            progress_bar(description, self.searched, enabled=self.progress) as bar,
        ):
            for count, batch in enumerate(bar, 1):
                inputs = on_device(batch, self.model)
                if count == 1:
                    record.check_first_batch(batch)
                if count > done:
                    self.model(**inputs)
                    record.save(search=search.state_dict(), batches=count)
        if not count:
            raise ValueError("batches is empty: there is nothing to calibrate on.")
        if count < done:
            raise ValueError(
                f"resume_from={str(record.path)!r} has seen {done} batches, but there are only {count} now."
            )
        return count

    def _budget(self, share: float) -> Budget:
        return Budget(share, self.model, self.searched)

    def _check_reached(self) -> None:
        names, reached = list(self.heads.alphas), self.heads.reached
        if not reached:
            raise ValueError(
                f"the batches reach none of the {len(names)} sparse attention modules: {shortened(names)}."
            )
        missed = [name for name in names if name not in reached]
        if missed:
            self.report.warn(
                f"the batches do not reach {len(missed)} of the {len(names)} sparse attention modules, which keep their "
                f"settings: {shortened(missed)}. Give batches with inputs for them too, or leave them dense (`layers`)."
            )

    def _check_support(self, choice: dict[str, Choice], target: float) -> None:
        shares = [share for chosen in choice.values() for share in chosen.support.tolist()]
        missed = [share for share in shares if abs(share - target) > _SUPPORT_TOLERANCE * target]
        if missed:
            self.report.warn(
                f"target_support={target} is not reached by {len(missed)} of {len(shares)} heads with any beta that was "
                f"tried: they use {min(missed):.3g} to {max(missed):.3g} of the visible keys."
            )

    def _check_budget(self, budget: Budget, refiner: Refiner) -> None:
        outcome = budget.measure(refiner, self.report.budget.get("dense_loss"))
        self.report.budget |= outcome
        if not budget.allows(outcome):
            self.report.warn(f"the search kept budget={budget.share}, but the refined settings exceed it: {outcome}.")


def planned_refinement(model: PreTrainedModel, options: CalibrationOptions) -> Refinement:
    """
    Return the steps and the learning rate of the refinement that [`calibrate`] does on a model.

    Args:
        model ([`~transformers.PreTrainedModel`]): A sparse model.
        options ([`CalibrationOptions`]): The options of the calibration.
    """
    if options.searches_alpha:
        return options.refinement(None)
    alphas = [
        torch.as_tensor(_alphas_to_try(site, options)[0], dtype=torch.float32).mean() for site in _sparse_sites(model)
    ]
    return options.refinement(float(torch.stack(alphas).mean()))


def _one(powers: torch.Tensor) -> torch.Tensor:
    """One zero in place of a zero for each head, so that a configuration says nothing where nothing depends on the length."""
    return powers if powers.any() else powers.new_zeros(1)


class _First:
    """
    The first `count` batches. Can be iterated more than once.

    Args:
        batches (iterable of `dict`): The batches.
        count (`int`): How many of them, at most.
    """

    def __init__(self, batches: Iterable[Batch], count: int) -> None:
        self.batches, self.count = batches, count

    def __len__(self) -> int:
        return min(self.count, len(self.batches)) if isinstance(self.batches, Sized) else self.count

    def __iter__(self) -> Iterator[Batch]:
        return itertools.islice(iter(self.batches), self.count)


def _sparse_sites(model: PreTrainedModel) -> list[Site]:
    found = []
    for site in attention_sites(model):
        retrieval = getattr(site.module, "sparse_hopfield", None)
        if isinstance(retrieval, LayerRetrieval):
            found.append(site)
        elif retrieval is not None:
            raise ValueError(
                f"adapters of {type(model).__name__} have their own alpha and beta in {site.name!r} ({type(retrieval).__name__}): "
                "calibrate the model before adapters are added to it."
            )
    return found


def _has_heads(site: Site) -> bool:
    """Return whether an attention module can have one setting per head."""
    return number_of_heads(site) is not None and (site.kind.registry or site.kind.per_head)


def _alphas_to_try(site: Site, options: CalibrationOptions) -> list[Setting]:
    if options.searches_alpha:
        return list(_SEARCHED_ALPHAS)
    if options.alpha is not None:
        return [float(options.alpha)]
    own = cast(LayerRetrieval, site.module.sparse_hopfield)()[1]
    return [own.detach().cpu() if isinstance(own, torch.Tensor) else own]


def _identity(model: PreTrainedModel, search: HeadSearch) -> dict[str, str]:
    """The options and weights that identify a search. `max_error` matters only if later layers see what was chosen."""
    names = (*_IDENTIFYING, "max_error") if search.options.layerwise else _IDENTIFYING
    values = {name: getattr(search.options, name) for name in names}
    values |= {"alpha": search.alphas, "heads": search.per_head}
    return {"weights": weights_fingerprint(model), **{name: str(value) for name, value in values.items()}}
