# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The recipe of a good conversion: every option of calibration with its default.

`calibrate`, the command line and the training scripts all read it here, so they make the same model from the same words.
This module does not import torch, so that the command line starts fast.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, TypeVar

from ..checks import check_choice, check_flag, check_integer, check_number, is_number


OBJECTIVES = ("output", "kl", "support")
REFINED_ON = ("auto", "loss", "dense")

_T = TypeVar("_T", bound="_Options")


class Refinement(NamedTuple):
    """How many gradient steps follow the search, and their learning rate."""

    steps: int
    learning_rate: float


REFINEMENT = Refinement(32, 0.05)
# Sparsemax starts further from the dense model, so it needs more steps.
SPARSEMAX_REFINEMENT = Refinement(64, 0.1)
_SPARSEMAX_ABOVE = 1.75


@dataclass(frozen=True)
class _Options:
    """Options of a function, which also takes them by name."""

    _function: ClassVar[str]

    def replaced(self: _T, values: Mapping[str, Any]) -> _T:
        """Return a copy with other values. Names that are not options are refused."""
        known = [each.name for each in dataclasses.fields(self)]
        for name in values:
            if name not in known:
                raise TypeError(f"{self._function} has no option {name!r}; its options are {', '.join(known)}.")
        return dataclasses.replace(self, **values)


@dataclass(frozen=True)
class InputOptions:
    """
    Size and seed of the inputs that the command line runs a model on.

    Args:
        batch_size (`int`, *optional*, defaults to 1): Samples per batch.
        length (`int`, *optional*, defaults to 512): Tokens in a window of text.
        seed (`int`, *optional*, defaults to 0): Chooses the windows, or the random inputs.
    """

    batch_size: int = field(default=1, metadata={"help": "samples per batch"})
    length: int = 512
    seed: int = field(default=0, metadata={"help": "seed for everything random"})


@dataclass(frozen=True)
class CalibrationOptions(_Options):
    """
    The options of [`calibrate`]. Their defaults are the recipe of a good conversion.

    Args:
        alpha (`float` or `str`, *optional*):
            A number for all heads; `"search"` to give each head the largest alpha in [1, 2] whose error stays below
            `max_error`; `None` to keep the alphas of the model (sparsemax if it was dense).
        objective (`str`, *optional*, defaults to `"output"`):
            What is minimised for each head. `"output"`: squared error of its output; `"kl"`: KL divergence of the sparse
            from the dense weights; `"support"`: no error; beta is chosen so that the share `target_support` of the visible
            keys gets weight.
        target_support (`float`, *optional*): The share, in (0, 1), for `objective="support"`.
        layerwise (`bool`, *optional*, defaults to `False`):
            Later layers see the outputs of sparse earlier layers (with the best settings so far) instead of dense ones. A
            budget searches alpha afterwards; until then, earlier layers keep to `max_error`.
        refine_steps (`int`, *optional*):
            Number of gradient steps, one batch each, on all betas (and searched alphas) together after the search. By
            default 32, or 64 for sparsemax (mean alpha above 1.75), or none with `budget` or `objective="support"`, because
            refining would leave the loss or the support that was asked for. 0 skips refining.
        refine_on (`str`, *optional*, defaults to `"auto"`):
            What these steps minimise. `"loss"`: the loss of the model on the `labels` in the batches; `"dense"`: the
            divergence from the dense model's outputs, which needs no labels; `"auto"`: the loss if there are labels. For a
            language model, the text itself is the labels and the loss is the better choice: it also adapts the heads to
            the text.
        learning_rate (`float`, *optional*): Of these steps. By default 0.05, or 0.1 for sparsemax.
        max_error (`float`, *optional*, defaults to 0.05):
            For `alpha="search"`: the largest squared error of a head's output, relative to its energy; with
            `objective="kl"`, the largest mean divergence of a row in nats.
        budget (`float`, *optional*):
            Find the sparsest model whose loss stays within this share of the dense loss (0.02 is 2 %). Alpha is searched,
            and `max_error` is found by bisection. Without labels, the divergence from the dense outputs must stay below
            `budget`. A budget that even nearly dense heads exceed is an error.
        search_batches (`int`, *optional*, defaults to 8):
            Search on this many batches; refining uses all of them. `None` searches on all.
        rows (`int`, *optional*, defaults to 64): Number of queries per batch to look at in each attention module.
        seed (`int`, *optional*, defaults to 0): Chooses these queries.
        lengths (`bool`, *optional*, defaults to `True`):
            Also choose `length_power` of each head, by which beta depends on the number of keys that a query sees. It stays
            0 where all queries see about as many, and with `objective="support"`.
        bf16 (`bool`, *optional*, defaults to `False`): Refine in mixed precision.

    Example:

    ```python
    >>> from hf_sparse_hopfield import CalibrationOptions

    >>> CalibrationOptions(alpha=1.5).refinement(mean_alpha=1.5)
    Refinement(steps=32, learning_rate=0.05)

    ```
    """

    _function = "calibrate"

    alpha: float | str | None = None
    objective: str = field(default="output", metadata={"help": "what each head minimises", "choices": OBJECTIVES})
    target_support: float | None = field(
        default=None, metadata={"help": "share of the visible keys that get weight, for --objective support"}
    )
    layerwise: bool = field(default=False, metadata={"help": "later layers see the outputs of sparse earlier layers"})
    refine_steps: int | None = field(
        default=None,
        metadata={
            "help": "gradient steps on beta and searched alpha after the search, one batch each; no weight changes "
            f"(default: {REFINEMENT.steps}; {SPARSEMAX_REFINEMENT.steps} for sparsemax; 0 for --budget and --objective "
            "support)"
        },
    )
    refine_on: str = field(
        default="auto",
        metadata={
            "help": "what these steps minimise: the loss of a causal language model on the text, or the divergence from "
            "the dense model, which does not adapt to the text; auto: the loss if there is one",
            "choices": REFINED_ON,
        },
    )
    learning_rate: float | None = field(
        default=None,
        metadata={
            "help": f"learning rate of these steps, on log beta (default: {REFINEMENT.learning_rate}; "
            f"{SPARSEMAX_REFINEMENT.learning_rate} for sparsemax)"
        },
    )
    max_error: float = field(
        default=0.05,
        metadata={
            "help": "for --alpha search: largest relative error of a head, or with --objective kl the largest divergence "
            "of a row in nats"
        },
    )
    budget: float | None = field(
        default=None,
        metadata={"help": "find the sparsest model within this share of the dense loss, such as 0.02"},
    )
    search_batches: int | None = field(default=8, metadata={"help": "batches to search on before refining"})
    rows: int = field(default=64, metadata={"help": "queries per batch to look at"})
    seed: int = 0
    lengths: bool = True
    bf16: bool = field(
        default=False, metadata={"help": "refine and distil in mixed precision, which is faster where it is built in"}
    )

    def __post_init__(self) -> None:
        self._check_alpha()
        self._check_support()
        check_choice("objective", self.objective, OBJECTIVES)
        check_choice("refine_on", self.refine_on, REFINED_ON)
        for name, least in (("refine_steps", 0), ("search_batches", 1), ("rows", 1)):
            check_integer(name, getattr(self, name), least, optional=name != "rows")
        for name in ("learning_rate", "max_error", "budget"):
            check_number(name, getattr(self, name), positive=True, optional=name != "max_error")
        check_flag("layerwise", self.layerwise)
        check_flag("lengths", self.lengths)
        check_flag("bf16", self.bf16)
        check_integer("seed", self.seed, least=0)
        if self.learning_rate is not None and not self.refines:
            raise ValueError(f"learning_rate={self.learning_rate} is for refinement, which these options leave out.")

    def _check_alpha(self) -> None:
        if self.alpha not in (None, "search") and not (is_number(self.alpha) and 1 <= self.alpha <= 2):
            raise ValueError(
                f"alpha must lie in [1, 2] (1: softmax, 2: sparsemax), or be 'search' or None, got {self.alpha!r}."
            )
        if self.budget is not None and self.alpha not in (None, "search"):
            raise ValueError(
                f"budget={self.budget} searches alpha, so alpha must be 'search' or None, got {self.alpha!r}."
            )

    def _check_support(self) -> None:
        if self.objective == "support" and self.searches_alpha:
            raise ValueError(
                "objective='support' does not look at errors, so it cannot search alpha: give alpha as a number, and no "
                f"budget, got alpha={self.alpha!r}, budget={self.budget}."
            )
        if (self.objective == "support") != (self.target_support is not None):
            raise ValueError(
                "target_support is required with objective='support' and not allowed otherwise, got "
                f"target_support={self.target_support}, objective={self.objective!r}."
            )
        if self.target_support is not None and not (is_number(self.target_support) and 0 < self.target_support < 1):
            raise ValueError(
                f"target_support must lie in (0, 1), a share of the visible keys, got {self.target_support}."
            )

    @property
    def searches_alpha(self) -> bool:
        """Whether each head gets an alpha of its own."""
        return self.alpha == "search" or self.budget is not None

    @property
    def searches_lengths(self) -> bool:
        """Whether each head gets a length_power of its own."""
        return self.lengths and self.objective != "support"

    @property
    def refines(self) -> bool:
        """Whether gradient steps follow the search."""
        if self.refine_steps is None:
            return self.objective != "support" and self.budget is None
        return self.refine_steps > 0

    def refinement(self, mean_alpha: float | None) -> Refinement:
        """
        Fill in the steps and the learning rate that were left to the recipe.

        Args:
            mean_alpha (`float`, *optional*): Mean alpha of the heads, if it is known before the search.
        """
        near_sparsemax = mean_alpha is not None and mean_alpha > _SPARSEMAX_ABOVE
        steps, learning_rate = SPARSEMAX_REFINEMENT if near_sparsemax else REFINEMENT
        if not self.refines:
            steps = 0
        elif self.refine_steps is not None:
            steps = self.refine_steps
        return Refinement(steps, learning_rate if self.learning_rate is None else self.learning_rate)


@dataclass(frozen=True)
class DistillationOptions(_Options):
    """
    The options of [`distill`]. Their defaults are the recipe of a good distillation.

    Args:
        steps (`int`, *optional*, defaults to 400): Steps on the outputs of the dense model.
        layer_steps (`int`, *optional*, defaults to 40): Steps before them on the outputs of each attention module.
        rank (`int`, *optional*):
            Train updates of this rank (LoRA, by peft) of the linear layers in the attention modules, instead of all their weights.
        merge (`bool`, *optional*, defaults to `True`):
            Add these updates to the weights in the end. Otherwise [`distill`] returns a [`~peft.PeftModel`], whose
            `save_pretrained` writes an adapter.
        learning_rate (`float`, *optional*): Of the weights. By default 2e-4, or 1e-3 with `rank`.
        settings_learning_rate (`float`, *optional*, defaults to 1e-2): Of log beta, length_power and alpha.
        learn_alpha (`bool`, *optional*, defaults to `False`): Learn alpha of every head, too.
        max_support (`float`, *optional*): The largest mean share of the visible keys that get weight; kept as a constraint.
        budget (`float`, *optional*):
            Instead of `max_support`: the sparsest model whose divergence from the dense one stays below this.
        holdout (`int`, *optional*): Batches to hold out for the report. By default every 16th, at most 16.
        seed (`int`, *optional*, defaults to 0): Seed of the order of the batches.

    Example:

    ```python
    >>> from hf_sparse_hopfield import DistillationOptions

    >>> DistillationOptions(steps=100).total_steps
    140

    ```
    """

    _function = "distill"

    steps: int = field(default=400, metadata={"help": "steps on the outputs of the dense model"})
    layer_steps: int = field(
        default=40, metadata={"help": "steps before them on the outputs of each attention module"}
    )
    rank: int | None = None
    merge: bool = True
    learning_rate: float | None = None
    settings_learning_rate: float = 1e-2
    learn_alpha: bool = False
    max_support: float | None = field(
        default=None, metadata={"help": "largest mean share of the visible keys that get weight, such as 0.1"}
    )
    budget: float | None = None
    holdout: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("steps", 0), ("layer_steps", 0), ("rank", 1), ("holdout", 1), ("seed", 0)):
            check_integer(name, getattr(self, name), least, optional=name in ("rank", "holdout"))
        for name in ("learning_rate", "settings_learning_rate", "max_support", "budget"):
            check_number(name, getattr(self, name), positive=True, optional=name != "settings_learning_rate")
        check_flag("learn_alpha", self.learn_alpha)
        check_flag("merge", self.merge)
        if not self.merge and self.rank is None:
            raise ValueError("merge=False keeps low-rank updates apart, and there are none: give a rank.")
        if not self.total_steps:
            raise ValueError("steps and layer_steps are both 0: there is nothing to train.")
        if self.max_support is not None and not 0 < self.max_support < 1:
            raise ValueError(f"max_support must lie in (0, 1), a share of the visible keys, got {self.max_support}.")
        if self.max_support is not None and self.budget is not None:
            raise ValueError(
                f"max_support={self.max_support} and budget={self.budget} exclude each other: one is the limit of the support, "
                "the other makes it as small as a divergence allows."
            )

    @property
    def total_steps(self) -> int:
        """All steps."""
        return self.layer_steps + self.steps

    @property
    def weights_learning_rate(self) -> float:
        """The learning rate, filled in where it was left to the recipe."""
        if self.learning_rate is not None:
            return self.learning_rate
        return 2e-4 if self.rank is None else 1e-3

    def held_out(self, batches: int) -> int:
        """Return how many of the batches to hold out."""
        return min(batches - 1, self.holdout or max(1, min(16, batches // 16)))


def usual_batches(refinement: Refinement) -> int:
    """Return how many batches a calibration needs: one for each step of refinement, and enough to search on."""
    return max(refinement.steps, REFINEMENT.steps)
