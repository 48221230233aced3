# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`SparseHopfieldArguments`: the command line of a training script, for `HfArgumentParser` beside `TrainingArguments`."""

import itertools
import logging
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from ..checks import check_choice, check_integer, check_number, is_number
from ..configuration import HEAD_FIELDS, SparseHopfieldConfig


if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedModel, TrainerCallback

logger = logging.getLogger(__name__)

SCHEDULES = ("constant", "linear", "cosine", "step")


@dataclass
class SparseHopfieldArguments:
    """
    Settings of sparse retrieval for a training script.

    Example:

    ```python
    >>> from transformers import BertConfig, BertForMaskedLM, HfArgumentParser
    >>> from hf_sparse_hopfield.training import SparseHopfieldArguments

    >>> command_line = ["--alpha_schedule", "linear", "--learn_beta"]  # of a script; TrainingArguments goes beside it
    >>> (arguments,) = HfArgumentParser([SparseHopfieldArguments]).parse_args_into_dataclasses(command_line)
    >>> model = BertForMaskedLM(BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, vocab_size=100))
    >>> model = arguments.prepare(model)
    >>> model.config.sparse_hopfield, [type(callback).__name__ for callback in arguments.callbacks()]
    (SparseHopfieldConfig(learn_beta=True), ['SparseHopfieldScheduleCallback'])

    ```
    """

    sparse_hopfield: bool = field(
        default=True,
        metadata={"help": "Retrieve sparsely. False trains the dense baseline and ignores the settings below."},
    )
    alpha: float = field(
        default=2.0, metadata={"help": "Member of the entmax family, in [1, 2]: 1 is softmax, 2 is sparsemax."}
    )
    beta: float = field(
        default=1.0, metadata={"help": "Positive factor on the model's own scaling of the scores; larger is sparser."}
    )
    steps: int = field(default=1, metadata={"help": "Retrieval steps, the read-out included."})
    tolerance: float = field(
        default=0.0, metadata={"help": "A query stops updating once its state moves by less than this."}
    )
    learn_alpha: bool = field(default=False, metadata={"help": "Learn alpha, one per head, starting at `alpha`."})
    learn_beta: bool = field(default=False, metadata={"help": "Learn beta, one per head, starting at `beta`."})
    length_power: float = field(
        default=0.0,
        metadata={
            "help": "beta is multiplied by (keys that a query sees / 256) ** length_power; 0: one beta for all lengths."
        },
    )
    learn_length_power: bool = field(
        default=False, metadata={"help": "Learn length_power, one per head, starting at `length_power`."}
    )
    calibration_batches: int = field(
        default=0,
        metadata={
            "help": "Calibrate beta of every head on this many batches before training starts (0: no calibration)."
        },
    )
    refine_steps: int | None = field(
        default=None,
        metadata={
            "help": "Gradient steps on all betas together after the search of calibration (0: none). By default as many as "
            "`calibrate` takes: 32, or 64 for sparsemax."
        },
    )
    alpha_schedule: str = field(
        default="constant",
        metadata={"help": "How alpha moves from `alpha_start` to `alpha` during training.", "choices": SCHEDULES},
    )
    alpha_start: float = field(default=1.0, metadata={"help": "Where an alpha schedule starts: 1 is softmax."})
    beta_schedule: str = field(
        default="constant",
        metadata={"help": "How beta moves from `beta_start` to `beta` during training.", "choices": SCHEDULES},
    )
    beta_start: float = field(
        default=1.0, metadata={"help": "Where a beta schedule starts: 1 is the model's own scaling."}
    )
    schedule_steps: float = field(
        default=1.0,
        metadata={
            "help": "Length of the schedules: up to 1, a share of all training steps; above 1, a number of steps. The "
            "schedule 'step' changes at their end."
        },
    )
    sparsity_logging_steps: int = field(
        default=0,
        metadata={"help": "Log support size, entropy and share of zero weights at this interval of steps (0: never)."},
    )
    hopfield_learning_rate: float | None = field(
        default=None,
        metadata={"help": "Learning rate of learned alpha and beta; defaults to that of the other parameters."},
    )

    def __post_init__(self) -> None:
        SparseHopfieldConfig.from_dict(self._settings())  # checks its own fields
        SparseHopfieldConfig(alpha=self.alpha_start)
        SparseHopfieldConfig(beta=self.beta_start)
        for name in ("calibration_batches", "refine_steps", "sparsity_logging_steps"):
            check_integer(name, getattr(self, name), least=0, optional=name == "refine_steps")
        if self.refine_steps and not self.calibration_batches:
            raise ValueError(
                f"refine_steps={self.refine_steps} refines a calibration: it needs calibration_batches > 0."
            )
        check_duration("schedule_steps", self.schedule_steps)
        for name in ("alpha", "beta"):
            schedule, start = getattr(self, f"{name}_schedule"), getattr(self, f"{name}_start")
            check_choice(f"{name}_schedule", schedule, SCHEDULES)
            if schedule == "constant" and start != 1.0:
                raise ValueError(f"{name}_start={start} needs a schedule: {name}_schedule is 'constant'.")
            if schedule != "constant" and getattr(self, f"learn_{name}"):
                raise ValueError(
                    f"{name}_schedule={schedule!r} and learn_{name}=True exclude each other: {name} is either learned or "
                    "set by the schedule."
                )
        if self.schedule_steps != 1.0 and self.alpha_schedule == self.beta_schedule == "constant":
            raise ValueError(
                f"schedule_steps={self.schedule_steps} needs alpha_schedule or beta_schedule; both are 'constant'."
            )
        rate = self.hopfield_learning_rate
        check_number("hopfield_learning_rate", rate, optional=True)
        if rate is not None and not any(getattr(self, f"learn_{name}") for name in HEAD_FIELDS):
            raise ValueError(
                f"hopfield_learning_rate={rate} needs learn_alpha, learn_beta or learn_length_power; all are False."
            )

    def _settings(self) -> dict[str, Any]:
        names = (*HEAD_FIELDS, "steps", "tolerance", *(f"learn_{name}" for name in HEAD_FIELDS))
        return {name: getattr(self, name) for name in names}

    def layer_settings(self) -> dict[str, Any]:
        """
        alpha, beta, steps, tolerance, learn_alpha and learn_beta, for the configuration of a model made of Hopfield layers.
        The dense baseline gets softmax with nothing learned.
        """
        settings = self._settings()
        if any([settings.pop("length_power"), settings.pop("learn_length_power")]):
            raise ValueError(
                f"length_power={self.length_power}, learn_length_power={self.learn_length_power}: Hopfield layers have one beta for "
                "rows of all lengths. Leave them out."
            )
        if self.sparse_hopfield:
            return settings
        return {**settings, "alpha": 1.0, "learn_alpha": False, "learn_beta": False}

    def prepare(self, model: "nn.Module", batches: Iterable[dict[str, Any]] | None = None) -> "nn.Module":
        """
        Prepare a model for training with these arguments, before the trainer gets it.

        A dense transformers model is converted in place with [`to_sparse_hopfield`]. A model that is already sparse (a sparse
        checkpoint, a model made of Hopfield layers) keeps its own settings, with a warning if they differ.

        Args:
            model (`torch.nn.Module`): The model.
            batches (iterable of `dict`, *optional*):
                Model inputs; the first `calibration_batches` of them are used. In a distributed run, all processes get the
                result of the first one.

        Returns:
            `torch.nn.Module`: The same model.
        """
        from ..integration.binding import has_bound_attention
        from ..integration.convert import to_sparse_hopfield
        from ..layers import RetrievalParameters

        has_layers = any(isinstance(module, RetrievalParameters) for module in model.modules())
        if not self.sparse_hopfield:
            if has_bound_attention(model):
                raise ValueError(
                    f"sparse_hopfield=False asks for the dense baseline, but {type(model).__name__} retrieves sparsely. "
                    "Start from the dense model, or restore dense attention with to_dense(model)."
                )
            return model
        if has_layers:
            self._warn_about_other_settings(model)
        else:
            model = to_sparse_hopfield(cast("PreTrainedModel", model), self._settings())
        if self.calibration_batches:
            self._calibrate(model, batches)
        return model

    def callbacks(self) -> "list[TrainerCallback]":
        """
        The callbacks for these arguments: schedules, sparsity logging.

        [`SparseHopfieldTrainer`] adds them when it gets these arguments. Pass them to any other trainer as
        `callbacks=arguments.callbacks()`; for sparsity logging, also set `callback.trainer = trainer`.
        """
        from .schedules import SparseHopfieldScheduleCallback
        from .sparsity_logging import SparsityLoggingCallback

        callbacks: list[TrainerCallback] = []
        if not self.sparse_hopfield:
            return callbacks
        if self.alpha_schedule != "constant" or self.beta_schedule != "constant":
            callbacks.append(
                SparseHopfieldScheduleCallback(
                    alpha_schedule=self.alpha_schedule,
                    alpha_start=self.alpha_start,
                    beta_schedule=self.beta_schedule,
                    beta_start=self.beta_start,
                    schedule_steps=self.schedule_steps,
                )
            )
        if self.sparsity_logging_steps:
            callbacks.append(SparsityLoggingCallback(every=self.sparsity_logging_steps))
        return callbacks

    def _warn_about_other_settings(self, model: "nn.Module") -> None:
        from ..layers import RetrievalParameters

        names = (*HEAD_FIELDS, *(f"learn_{name}" for name in HEAD_FIELDS))
        asked = {name: getattr(self, name) for name in names}
        for name, module in model.named_modules():
            if not isinstance(module, RetrievalParameters):
                continue
            own = {name: module.configured(name) for name in HEAD_FIELDS}
            own |= {f"learn_{name}": getattr(module, f"learn_{name}") for name in HEAD_FIELDS}
            other = {key: value for key, value in own.items() if value != asked[key]}
            if other:
                logger.warning(
                    "%s is already sparse and keeps its own settings: %s has %s, the arguments have %s. For other settings, "
                    "start from the dense model.",
                    type(model).__name__,
                    name,
                    other,
                    {key: asked[key] for key in other},
                )
                return

    def _calibrate(self, model: "nn.Module", batches: Iterable[dict[str, Any]] | None) -> None:
        import torch
        from accelerate.utils import broadcast_object_list

        from ..calibration.calibration import calibrate
        from ..integration.binding import has_bound_attention
        from ..integration.model_settings import LiveSettings

        if not has_bound_attention(model):
            raise ValueError(
                f"calibration_batches={self.calibration_batches}: {type(model).__name__} is made of Hopfield layers and has "
                "no dense attention to calibrate against. Use calibration_batches=0."
            )
        if batches is None:
            raise ValueError(f"calibration_batches={self.calibration_batches} needs batches, got None.")
        batches = list(itertools.islice(batches, self.calibration_batches))
        if len(batches) < self.calibration_batches:
            raise ValueError(
                f"calibration_batches={self.calibration_batches}, but there are only {len(batches)} batches."
            )
        calibrate(cast("PreTrainedModel", model), batches, refine_steps=self.refine_steps)
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            # Each process may have seen other batches; all continue with the settings of the first one.
            live = LiveSettings(model)
            live.write(broadcast_object_list([live.read()])[0], restart_learned=live.retrievals)


def check_duration(name: str, value: float) -> None:
    """Raise `ValueError` unless `value` is a share in (0, 1] or a whole number of steps."""
    if not is_number(value) or not 0 < value < math.inf or (value > 1 and value != int(value)):
        raise ValueError(
            f"{name} must be a share of all steps in (0, 1], or a whole number of steps above 1, got {value!r}."
        )
