# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`SparseHopfieldScheduleCallback`: alpha and beta as functions of the training step, and of nothing else."""

import logging
import math
from typing import Any

from accelerate.state import AcceleratorState
from accelerate.utils import DynamoBackend
from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

from ..checks import check_choice
from ..configuration import SparseHopfieldConfig
from ..integration.model_settings import LiveSettings
from ..observation import has_compiled_parts
from .arguments import SCHEDULES, check_duration


logger = logging.getLogger(__name__)

_NAMES = ("alpha", "beta")
Tree = Any  # nested dicts and lists of numbers, as JSON holds them


class SparseHopfieldScheduleCallback(TrainerCallback, ExportableState):
    """
    Moves alpha and beta of all sparse layers during training, from a common start to the model's own values.

    The value after step `n` depends on `n` alone, so a resumed run continues exactly. It is written to the modules and to
    the model's configuration: a checkpoint records the values it was trained with. At the end the model has its own values
    again (if training ends before the schedule, the values reached; after `load_best_model_at_end`, those of the best
    step). Learned parameters cannot be scheduled.

    Args:
        alpha_schedule (`str`, *optional*, defaults to `"constant"`):
            `"linear"`, `"cosine"`, `"step"` (at once, when `schedule_steps` are over), or `"constant"`: leave alpha alone.
        alpha_start (`float`, *optional*, defaults to 1.0): Where alpha starts: 1 is softmax, 2 is sparsemax.
        beta_schedule (`str`, *optional*, defaults to `"constant"`): The same for beta.
        beta_start (`float`, *optional*, defaults to 1.0): Where beta starts: 1 is the model's own scaling.
        schedule_steps (`float`, *optional*, defaults to 1.0):
            Length of the schedule: up to 1, a share of all training steps; above 1, a number of steps.

    Example:

    ```python
    >>> from hf_sparse_hopfield.training import SparseHopfieldScheduleCallback
    >>> schedule = SparseHopfieldScheduleCallback(alpha_schedule="linear", schedule_steps=0.5)
    >>> [schedule.value("alpha", 2.0, step, max_steps=100) for step in (0, 25, 50, 100)]
    [1.0, 1.5, 2.0, 2.0]

    ```
    """

    def __init__(
        self,
        alpha_schedule: str = "constant",
        alpha_start: float = 1.0,
        beta_schedule: str = "constant",
        beta_start: float = 1.0,
        schedule_steps: float = 1.0,
    ) -> None:
        self.schedules = {"alpha": alpha_schedule, "beta": beta_schedule}
        self.starts = {"alpha": alpha_start, "beta": beta_start}
        self.schedule_steps = schedule_steps
        for name, schedule in self.schedules.items():
            check_choice(f"{name}_schedule", schedule, SCHEDULES)
        if alpha_schedule == beta_schedule == "constant":
            raise ValueError("alpha_schedule and beta_schedule are both 'constant': there is nothing to schedule.")
        SparseHopfieldConfig(alpha=alpha_start, beta=beta_start)  # checks them
        check_duration("schedule_steps", schedule_steps)
        self.targets: Tree = None
        self._live: LiveSettings  # from the start of training
        self._progress: tuple[float, ...] | None = None

    def state(self) -> dict[str, Any]:
        """State for a checkpoint: the arguments, and the targets, which a model loaded from the checkpoint does not know."""
        arguments: dict[str, Any] = {f"{name}_schedule": schedule for name, schedule in self.schedules.items()}
        arguments |= {f"{name}_start": start for name, start in self.starts.items()}
        return {
            "args": {**arguments, "schedule_steps": self.schedule_steps},
            "attributes": {"targets": self.targets},
        }

    def value(self, name: str, target: float, step: int, max_steps: int) -> float:
        """
        alpha or beta after a number of steps.

        Args:
            name (`str`): `"alpha"` or `"beta"`.
            target (`float`): Where it ends.
            step (`int`): Steps done.
            max_steps (`int`): Steps of the whole training.
        """
        return _between(self.starts[name], target, self._share(name, step, max_steps))

    def _share(self, name: str, step: int, max_steps: int) -> float:
        """Share of the schedule that is done, in [0, 1]."""
        schedule = self.schedules[name]
        duration = self.schedule_steps if self.schedule_steps > 1 else round(self.schedule_steps * max_steps)
        if schedule == "constant" or step >= duration:
            return 1.0
        share = step / duration
        if schedule == "linear":
            return share
        return (1 - math.cos(math.pi * share)) / 2 if schedule == "cosine" else 0.0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        model = kwargs["model"]
        self._live = LiveSettings(model)
        self._compiled = _is_compiled(model)
        self._live.refuse_learned(name for name in _NAMES if self.schedules[name] != "constant")
        present = self._live.read()
        name = type(self).__name__
        callbacks: Any = state.stateful_callbacks  # a dict while training, whatever its annotation says
        stored = callbacks.setdefault(name, self.state())
        if isinstance(stored, list):
            raise ValueError(f"the trainer has {len(stored)} callbacks {name}; one schedules both alpha and beta.")
        resumed = state.global_step > 0 and stored["attributes"]["targets"] is not None
        self.targets = stored["attributes"]["targets"] if resumed else present
        self._progress = None
        if present not in (self.targets, self._at(state.global_step, state.max_steps)):
            logger.warning(
                "The schedule continues to the targets of the checkpoint, %s; the model had %s.", self.targets, present
            )
        self._set(state.global_step, state.max_steps)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._set(state.global_step, state.max_steps)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        best = args.load_best_model_at_end and state.best_model_checkpoint is not None
        step = state.best_global_step if best else state.global_step
        self._live.write(self._at(step or 0, state.max_steps))

    def _at(self, step: int, max_steps: int) -> Tree:
        shares = {name: self._share(name, step, max_steps) for name in _NAMES}
        return _interpolated(self.targets, self.starts, shares)

    def _set(self, step: int, max_steps: int) -> None:
        progress = tuple(self._share(name, step, max_steps) for name in _NAMES)
        if progress != self._progress:
            moving = [name for name in _NAMES if self.schedules[name] in ("linear", "cosine")]
            # a compiled model compiles again for every new number, but not for a new value in a tensor
            tensors = [name for name in moving if self._compiled and progress[_NAMES.index(name)] < 1]
            self._live.write(self._at(step, max_steps), tensors)
            self._progress = progress


def _between(start: float, target: float, share: float) -> float:
    if share == 1.0:
        return target
    value = start + (target - start) * share
    return min(max(value, min(start, target)), max(start, target))  # rounding must not leave the range


def _interpolated(tree: Tree, starts: dict[str, float], shares: dict[str, float], name: str | None = None) -> Tree:
    """A copy in which every number below a key `alpha` or `beta` is interpolated."""
    if isinstance(tree, dict):
        return {
            key: _interpolated(value, starts, shares, key if key in shares else None) for key, value in tree.items()
        }
    if isinstance(tree, list):
        return [_interpolated(value, starts, shares, name) for value in tree]
    return tree if name is None or tree is None else _between(starts[name], tree, shares[name])


def _is_compiled(model: nn.Module) -> bool:
    """Whether the model is compiled, or the trainer compiles it."""
    return has_compiled_parts(model) or AcceleratorState().dynamo_plugin.backend != DynamoBackend.NO
