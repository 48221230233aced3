# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`distill`: train the attention of a sparse model until it does what the dense model did.

First each attention module learns to give the dense module's output on the dense module's input. Then the whole model learns the
dense model's outputs. The dense model is the same model: dense attention, and the weights that are trained as they were before.
"""

import dataclasses
import inspect
import math
import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from accelerate.utils import extract_model_from_parallel
from torch import nn
from transformers import PreTrainedModel, PrinterCallback, TrainerCallback, TrainingArguments
from transformers.utils import logging

from ..configuration import HEAD_FIELDS
from ..files import write_json
from ..integration.binding import LayerRetrieval, bind
from ..integration.model_settings import LiveSettings, apply_settings
from ..integration.sites import Site, attention_sites
from ..model_running import Batch, batch_size, evaluating, main_output, on_device
from ..observation import OwnSettings, observed, own_settings
from ..progress import progress_bar
from ..training import SparseHopfieldArguments, SparseHopfieldTrainer
from ..training.progress import TrainerProgress
from .comparison import (
    compare_with_dense,
    counted_positions,
    divergence,
    takes_decoder_inputs,
    twin,
)
from .low_rank import add_low_rank, is_low_rank, relative_change
from .recipe import DistillationOptions
from .support_constraint import SupportConstraint, SupportMeter


logger = logging.get_logger(__name__)

_LEARNED = ("beta", "length_power")
_DECODER_INPUTS = ("decoder_input_ids", "decoder_inputs_embeds")
_LOGGED = ("step", "loss", "layer_error", "divergence", "support")
_MEASURED_ROWS = 16
_MEASURED_EVERY = 4  # steps: a measurement takes a fifth of a step


@dataclass
class DistillationReport:
    """
    The result of [`distill`].

    Args:
        options (`dict`): The options.
        steps (`int`): Steps that were taken.
        tokens (`int`): Tokens that they saw; samples, for models that take no tokens.
        held_out (`dict[str, dict[str, float]]`):
            Before and after: `divergence` from the dense model and `cosine` of the outputs, and with labels both losses, on batches
            that were not trained on.
        held_out_batches (`int`): Their number.
        support (`dict[str, list[float]]`): Share of the visible keys with weight in each head, by attention module.
        changed (`dict[str, float]`): Relative change of the trained weights of each attention module.
        losses (`list[float]`): What was minimised, for each step that was logged.
        log (`list[dict[str, float]]`):
            For each of these steps: `step`, `loss`, `layer_error` (of the outputs of attention modules) or `divergence`, and `support`.
        seconds (`float`): Duration.
    """

    options: dict[str, Any]
    steps: int = 0
    tokens: int = 0
    held_out: dict[str, dict[str, float]] = field(default_factory=dict)
    held_out_batches: int = 0
    support: dict[str, list[float]] = field(default_factory=dict)
    changed: dict[str, float] = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)
    log: list[dict[str, float]] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def mean_support(self) -> float:
        """Mean over all heads of the share of keys with weight."""
        values = [share for layer in self.support.values() for share in layer]
        return sum(values) / len(values)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that JSON can hold."""
        return {**dataclasses.asdict(self), "mean_support": self.mean_support}

    def save(self, path: str | os.PathLike) -> None:
        """Write the report as JSON."""
        write_json(path, self.to_dict())


def distill(
    model: PreTrainedModel,
    batches: Sequence[Batch],
    teacher: nn.Module | None = None,
    options: DistillationOptions | None = None,
    *,
    training_arguments: TrainingArguments | None = None,
    resume_from_checkpoint: str | bool | None = None,
    progress: bool = True,
    **overrides: Any,
) -> tuple[Any, DistillationReport]:
    """
    Train the attention of a sparse model on the outputs of the dense one.

    Calibrate the model first. Trained are the weights of its sparse attention modules (with `rank`, low-rank updates of them), and
    beta and length_power of every head (and alpha, with `learn_alpha`); all other weights stay as they are. [`SparseHopfieldTrainer`] does the work, so that
    `accelerate launch`, mixed precision, gradient accumulation, checkpoints and logging work as usual.

    Args:
        model ([`~transformers.PreTrainedModel`]): A sparse model. It is changed in place.
        batches (sequence of `dict`): Model inputs, one batch per step and process. The last ones are held out for the report.
        teacher (`torch.nn.Module`, *optional*):
            The model to learn from. By default the model itself with dense attention and the weights it has now; only the
            trained weights exist twice.
        options ([`DistillationOptions`], *optional*): How to train.
        training_arguments ([`~transformers.TrainingArguments`], *optional*):
            Where to keep checkpoints, precision, logging and so on. Learning rate and number of steps come from `options`.
        resume_from_checkpoint (`str` or `bool`, *optional*): As for `Trainer.train`.
        progress (`bool`, *optional*, defaults to `True`): Show progress.
        **overrides: Fields of [`DistillationOptions`]. They take precedence over `options`.

    Returns:
        `tuple`: The model, and a [`DistillationReport`]. With `merge=False`, instead of the model a [`~peft.PeftModel`] around it.

    Example:

    ```python
    >>> import torch
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> from hf_sparse_hopfield import calibrate, distill

    >>> sizes = {"hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 2, "vocab_size": 99}
    >>> model = LlamaForCausalLM(LlamaConfig(**sizes, num_hidden_layers=2))
    >>> batches = [{"input_ids": torch.randint(0, 99, (2, 32))} for _ in range(8)]
    >>> model, _ = calibrate(model, batches, alpha=1.5, progress=False)
    >>> model, report = distill(model, batches, steps=4, layer_steps=2, progress=False)
    >>> report.steps
    6

    ```
    """
    start = time.monotonic()
    _check_given(model, teacher, options)
    options = (options or DistillationOptions()).replaced(overrides)
    batches = _checked(batches)
    held_out = batches[-options.held_out(len(batches)) :]
    trained_on = batches[: len(batches) - len(held_out)]
    with ExitStack() as stack:
        if training_arguments is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            training_arguments = TrainingArguments(
                folder, save_strategy="no", report_to=[], logging_steps=10, use_cpu=_is_on_cpu(model)
            )
        adapted = stack.enter_context(_learning(model, options))
        distillation = Distillation(model, teacher, options)
        distillation.check_teacher(batches[0])
        report = DistillationReport(dataclasses.asdict(options), held_out_batches=len(held_out))
        progress = progress and training_arguments.process_index == 0
        report.held_out["before"] = distillation.compare(held_out, progress)
        bar = stack.enter_context(progress_bar("distilling", total=options.total_steps, enabled=progress))
        trainer = _DistillationTrainer(
            model=distillation,
            args=_arguments(training_arguments, options),
            train_dataset=_Repeated(trained_on, options.total_steps * _batches_per_step(training_arguments)),
            data_collator=_only,
            callbacks=[_Steps(distillation), TrainerProgress(bar)],
            sparse_hopfield_args=SparseHopfieldArguments(
                learn_beta=True, hopfield_learning_rate=options.settings_learning_rate
            ),
        )
        trainer.remove_callback(PrinterCallback)  # it writes to stdout, which may be JSON
        trainer.train(resume_from_checkpoint)
        report.steps = trainer.state.global_step
        report.tokens = sum(_tokens(batch) for batch in trained_on) * report.steps // max(1, len(trained_on))
        report.tokens *= _batches_per_step(training_arguments)
        report.log = [
            {name: entry[name] for name in _LOGGED if name in entry}
            for entry in trainer.state.log_history
            if "loss" in entry
        ]
        report.losses = [entry["loss"] for entry in report.log]
        bar.close()
        report.held_out["after"] = distillation.compare(held_out, progress)
        report.support = distillation.measured(held_out)
        report.changed = distillation.changed()
        settings = distillation.settings()
    apply_settings(model, settings)
    report.seconds = time.monotonic() - start
    return adapted if adapted is not None and not options.merge else model, report


class Distillation(nn.Module):
    """
    The module that is trained: its forward pass runs both models on a batch and returns how far they are apart.

    Its state is what is trained and nothing else, so checkpoints are small.

    Args:
        model ([`~transformers.PreTrainedModel`]): The sparse model, with learned settings.
        teacher (`torch.nn.Module`, *optional*): The dense one; the model itself by default.
        options ([`DistillationOptions`]): How to train.
    """

    # What `load_state_dict` returns: the trainer would take the weights that are not in a checkpoint for missing ones.
    _COMPLETE = nn.Module().load_state_dict({})

    def __init__(self, model: PreTrainedModel, teacher: nn.Module | None, options: DistillationOptions) -> None:
        super().__init__()
        self.model, self.options = model, options
        self._teacher = [teacher]  # in a list: it is no part of what is trained
        self.sites = {site.name: site for site in _sparse_sites(model)}
        self.constraint = SupportConstraint(self.retrievals, options.max_support, options.budget)
        self.before = {
            name: parameter.detach().clone()
            for name, parameter in model.named_parameters()
            if parameter.requires_grad and not _is_setting(name)
        }
        self._in_decoder = _names_in_decoder(model) & self.sites.keys()
        self.step = 0
        self.is_measured = False
        self._distances: list[torch.Tensor] = []  # of the batches of this step
        self._logged: list[float] = []  # of the steps since the last log

    @property
    def retrievals(self) -> dict[str, LayerRetrieval]:
        """The learned settings of each sparse attention module."""
        return {name: site.module.sparse_hopfield for name, site in self.sites.items()}  # type: ignore[misc]

    @property
    def is_by_layers(self) -> bool:
        """Whether this step matches each attention module, and not the outputs of the model."""
        return self.step < self.options.layer_steps

    def begin_step(self, step: int, is_logged: bool) -> None:
        """
        Begin a step.

        Args:
            step (`int`): Steps before it.
            is_logged (`bool`): Whether a log follows it, for which the support is counted.
        """
        if self.step < self.options.layer_steps <= step:
            self._logged.clear()  # another quantity
        self.step = step
        self.is_measured = is_logged or (self.constraint.is_active and step % _MEASURED_EVERY == 0)
        self._distances.clear()

    def end_step(self) -> None:
        """Let the constraint follow what the batches of this step say, in all processes."""
        distance = float(torch.stack(self._distances).mean())
        self._logged.append(distance)
        if self.constraint.max_support is not None or not self.is_by_layers:  # the budget is for outputs
            self.constraint.adjust(distance)

    def measurements(self) -> dict[str, float]:
        """
        What was measured since the last call: `divergence` of the outputs, or `layer_error` of the outputs of attention modules in the
        steps on these, and `support`.
        """
        name = "layer_error" if self.is_by_layers else "divergence"
        found = {name: sum(self._logged) / len(self._logged)} if self._logged else {}
        self._logged.clear()
        return {**found, "support": self.constraint.support()} if self.is_measured else found

    def forward(self, batch: Batch) -> dict[str, torch.Tensor]:
        """
        Return the loss of a batch.

        Args:
            batch (`dict`): Model inputs. Labels are not used.
        """
        inputs = self._inputs(batch)
        meter = SupportMeter(_MEASURED_ROWS, self.step) if self.is_measured else OwnSettings()
        with observed(self.model, meter) as parameters:
            if isinstance(meter, SupportMeter):
                meter.parameters = parameters
            loss = self._layer_loss(inputs, batch) if self.is_by_layers else self._output_loss(inputs, batch)
        self._distances.append(loss.detach().float())
        if isinstance(meter, SupportMeter):
            self.constraint.note(meter.shares)
        if self.constraint.is_active:
            loss = loss + self.constraint.penalty(self.retrievals)
        return {"loss": loss}

    def _output_loss(self, inputs: Batch, batch: Batch) -> torch.Tensor:
        with self.dense() as teacher, torch.no_grad():
            name, dense = main_output(teacher(**inputs))
        counted = counted_positions(batch, decoder=takes_decoder_inputs(self.model))
        return divergence(name, dense, main_output(self.model(**inputs))[1], counted)

    def _layer_loss(self, inputs: Batch, batch: Batch) -> torch.Tensor:
        """The mean over attention modules of the squared error of their output, relative to its energy. Padding does not count."""
        calls: list[tuple[str, tuple, dict, torch.Tensor]] = []  # a module that several layers share has several

        def kept(name: str) -> Any:
            def hook(module: nn.Module, args: tuple, kwargs: dict, output: Any) -> None:
                calls.append((name, args, kwargs, output[0] if isinstance(output, tuple) else output))

            return hook

        with self.dense() as teacher, torch.no_grad():
            modules = dict(teacher.named_modules())
            hooks = [modules[name].register_forward_hook(kept(name), with_kwargs=True) for name in self.sites]
            try:
                teacher(**inputs)
            finally:
                for hook in hooks:
                    hook.remove()
        losses = []
        for name, args, kwargs, dense in calls:
            module = self.sites[name].module
            dtype = next((weight.dtype for weight in module.parameters()), dense.dtype)
            output = module(*_in_dtype(args, dtype), **_in_dtype(kwargs, dtype))
            output = output[0] if isinstance(output, tuple) else output
            counted = counted_positions(batch, decoder=name in self._in_decoder)
            losses.append(divergence("", dense, output, counted))
        return torch.stack(losses).mean()

    @torch.no_grad()
    def check_teacher(self, batch: Batch) -> None:
        """
        Refuse a teacher whose outputs the model cannot learn, before any work.

        Args:
            batch (`dict`): Model inputs to try.
        """
        teacher = self._teacher[0]
        if teacher is None:
            return
        kind = f"teacher ({type(teacher).__name__})"
        batch = on_device(batch, self.model)
        inputs = self._inputs(batch)
        with self.dense(), evaluating(self.model):
            found = main_output(self.model(**inputs))
            try:
                expected = main_output(teacher(**inputs))
            except Exception as error:  # an unsuitable model can fail in any way
                raise ValueError(f"{kind} fails on the batches ({type(error).__name__}: {error}).") from error
        if (expected[0], expected[1].shape) != (found[0], found[1].shape):
            raise ValueError(
                f"{kind} does not fit the model: it gives {expected[0]} of shape {tuple(expected[1].shape)}, "
                f"the model {found[0]} of shape {tuple(found[1].shape)}."
            )
        if not self.options.layer_steps:
            return
        known = dict(teacher.named_modules())
        lacking = [name for name in self.sites if name not in known]
        if lacking:
            raise ValueError(
                f"{kind} has no module {lacking[0]!r} to match: set layer_steps=0 to learn its outputs only."
            )
        try:
            with observed(self.model, OwnSettings()):
                self._layer_loss(inputs, batch)
        except Exception as error:  # as above
            raise ValueError(
                f"{kind} has attention modules that those of the model cannot match ({type(error).__name__}: {error}): set layer_steps=0 "
                "to learn its outputs only."
            ) from error

    @contextmanager
    def dense(self) -> Iterator[nn.Module]:
        """The dense model, until the context ends."""
        teacher = self._teacher[0]
        if teacher is not None:
            with evaluating(teacher):
                yield teacher
            return
        with twin(self.model) as model, self._weights_before():
            yield model

    @contextmanager
    def _weights_before(self) -> Iterator[None]:
        """The trained weights as they were. Nothing is copied, so it costs nothing."""
        # autocast keeps the copies in half precision that it made of weights, and would give them out for the others
        torch.clear_autocast_cache()
        parameters = dict(self.model.named_parameters())
        trained = {name: parameters[name].data for name in self.before}
        try:
            for name, before in self.before.items():
                if before.device != trained[name].device:
                    before = self.before[name] = before.to(trained[name].device)
                parameters[name].data = before
            yield
        finally:
            for name, data in trained.items():
                parameters[name].data = data
            torch.clear_autocast_cache()

    def _inputs(self, batch: Batch) -> Batch:
        """The inputs for a comparison: without labels, whose loss nobody wants, and without a cache, which one run would fill."""
        inputs = {name: value for name, value in batch.items() if name != "labels"}
        if (
            "labels" in batch
            and takes_decoder_inputs(self.model)
            and not any(name in batch for name in _DECODER_INPUTS)
        ):
            shifted: Any = self.model.prepare_decoder_input_ids_from_labels
            inputs["decoder_input_ids"] = shifted(labels=batch["labels"])
        if "use_cache" in inspect.signature(self.model.forward).parameters:
            inputs["use_cache"] = False
        return inputs

    def compare(self, batches: Sequence[Batch], progress: bool = False) -> dict[str, float]:
        """
        Compare the model with the dense one.

        Args:
            batches (sequence of `dict`): Model inputs; with labels, losses are compared too.
            progress (`bool`, *optional*, defaults to `False`): Show progress.
        """
        return compare_with_dense(self.model, batches, dense=self.dense, progress=progress)

    @torch.no_grad()
    def measured(self, batches: Sequence[Batch]) -> dict[str, list[float]]:
        """Share of the visible keys with weight in each head."""
        meter, totals = SupportMeter(4 * _MEASURED_ROWS, 0), dict.fromkeys(self.sites, 0.0)
        with evaluating(self.model), observed(self.model, meter) as meter.parameters:
            for batch in batches:
                self.model(**self._inputs(on_device(batch, self.model)))
                totals = {name: totals[name] + share.cpu() for name, share in meter.shares.items()}  # type: ignore[misc]
        return {name: (total / len(batches)).tolist() for name, total in totals.items()}  # type: ignore[attr-defined]

    @torch.no_grad()
    def changed(self) -> dict[str, float]:
        """Norm of the change of the trained weights of each attention module, relative to that of the weights."""
        if self.options.rank is not None:
            return {name: relative_change(site.module) for name, site in self.sites.items()}
        parameters = dict(self.model.named_parameters())
        changes = {}
        for site in self.sites:
            names = [name for name in self.before if name.startswith(f"{site}.")]
            change = sum(float((parameters[name] - self.before[name]).float().square().sum()) for name in names)
            size = sum(float(self.before[name].float().square().sum()) for name in names)
            changes[site] = math.sqrt(change / size) if size else 0.0
        return changes

    @torch.no_grad()
    def settings(self) -> dict[str, dict[str, torch.Tensor]]:
        """The present settings of each attention module, one per head."""
        result = {}
        for name, retrieval in self.retrievals.items():
            values = own_settings(retrieval)._asdict()
            result[name] = {key: torch.as_tensor(value).detach().cpu().reshape(-1) for key, value in values.items()}
        return result

    def train(self, mode: bool = True) -> "Distillation":
        """As of any module, but the model stays in evaluation mode: dropout would hide the difference that is to be learned."""
        super().train(mode)
        self.model.eval()
        return self

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """What is trained, and the state of the constraint."""
        trained = {name for name, parameter in self.named_parameters() if parameter.requires_grad}
        state = super().state_dict(*args, **kwargs)
        return {name: value for name, value in state.items() if name in trained or name.startswith("constraint.")}

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        """Load what [`~Distillation.state_dict`] returns; anything else is refused."""
        missing = self.state_dict().keys() ^ state_dict.keys()
        if missing:
            raise ValueError(
                f"the checkpoint is of another distillation: {sorted(missing)[:3]} are in only one of them."
            )
        super().load_state_dict(state_dict, strict=False, assign=assign)
        return type(self)._COMPLETE


class _DistillationTrainer(SparseHopfieldTrainer):
    """Logs what the distillation measures with the loss, so that every logger and the history have it."""

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        if "loss" in logs:
            found = self.distillation.measurements()
            values: Any = self.accelerator.reduce(torch.tensor([*found.values()], device=self.args.device), "mean")
            logs = {**logs, **dict(zip(found, values.tolist(), strict=True))}
        super().log(logs, *args, **kwargs)

    @property
    def distillation(self) -> Distillation:
        """What is trained."""
        return cast(Distillation, extract_model_from_parallel(self.model, keep_torch_compile=False))


class _Steps(TrainerCallback):
    """Tells the distillation the number of the step, and lets the constraint follow."""

    def __init__(self, distillation: Distillation) -> None:
        self.distillation = distillation

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        is_logged = args.logging_strategy == "steps" and (state.global_step + 1) % state.logging_steps == 0
        self.distillation.begin_step(state.global_step, is_logged)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.distillation.end_step()


class _Repeated(torch.utils.data.Dataset):
    """
    Batches in an order of their own for each pass, for as many steps as it takes. An epoch of the trainer is all of them.

    Args:
        batches (sequence of `dict`): The batches.
        count (`int`): How many are needed.
    """

    def __init__(self, batches: Sequence[Batch], count: int) -> None:
        self.batches, self.count = batches, max(count, 1)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Batch:
        return self.batches[index % len(self.batches)]


def _only(samples: list[Batch]) -> dict[str, Batch]:
    """A sample of the trainer is a batch already."""
    return {"batch": samples[0]}


def _arguments(given: TrainingArguments, options: DistillationOptions) -> TrainingArguments:
    return dataclasses.replace(
        given,
        learning_rate=options.weights_learning_rate,
        max_steps=options.total_steps,
        warmup_steps=min(10, options.total_steps // 10),
        lr_scheduler_type="cosine",
        per_device_train_batch_size=1,
        remove_unused_columns=False,
        weight_decay=0.0,
        seed=options.seed,
        disable_tqdm=True,  # our own bar tells what is done
    )


def _batches_per_step(arguments: TrainingArguments) -> int:
    return arguments.gradient_accumulation_steps * arguments.world_size


def _is_on_cpu(model: nn.Module) -> bool:
    return next(model.parameters()).device.type == "cpu"


def _tokens(batch: Batch) -> int:
    tokens = batch.get("input_ids")
    return tokens.numel() if isinstance(tokens, torch.Tensor) else batch_size(batch)


def _checked(batches: Iterable[Batch]) -> list[Batch]:
    batches = list(batches)
    if len(batches) < 2:
        raise ValueError(
            f"batches has {len(batches)}: distillation needs at least 2, one to train on and one to hold out."
        )
    return batches


def _sparse_sites(model: PreTrainedModel) -> list[Site]:
    sites = [
        site
        for site in attention_sites(model)
        if isinstance(getattr(site.module, "sparse_hopfield", None), LayerRetrieval)
    ]
    if not sites:
        raise ValueError(
            f"{type(model).__name__} has no sparse attention to distil into: convert and calibrate it first."
        )
    return sites


def _names_in_decoder(model: PreTrainedModel) -> set[str]:
    """The paths of the modules in the decoder of an encoder-decoder; of other models none."""
    if not takes_decoder_inputs(model):
        return set()
    inside = set(model.get_decoder().modules())
    return {name for name, module in model.named_modules() if module in inside}


def _in_dtype(value: Any, dtype: torch.dtype) -> Any:
    """The arguments of a teacher's module, in the dtype of the model's."""
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    if isinstance(value, dict):
        return {name: _in_dtype(part, dtype) for name, part in value.items()}
    return tuple(_in_dtype(part, dtype) for part in value) if type(value) is tuple else value


def _check_given(model: PreTrainedModel, teacher: Any, options: Any) -> None:
    if not isinstance(options, DistillationOptions | None):
        raise TypeError(f"options must be DistillationOptions or None, got {options!r}; give single options by name.")
    if teacher is None:
        return
    if not isinstance(teacher, nn.Module):
        raise TypeError(
            f"teacher must be a model, or None for the model itself with dense attention, got {teacher!r}."
        )
    own = {id(parameter) for parameter in model.parameters()}
    if any(id(parameter) in own for parameter in teacher.parameters()):
        raise ValueError(
            f"teacher ({type(teacher).__name__}) shares weights with the model, and would change with it. Leave it out: by default the "
            "model learns from itself with dense attention, without a second copy."
        )


def _is_setting(name: str) -> bool:
    return ".sparse_hopfield." in f".{name}"


@contextmanager
def _learning(model: PreTrainedModel, options: DistillationOptions) -> Iterator[Any]:
    """
    Settings are learned, and nothing but sparse attention is trained, until the context ends. With a rank, the context is the
    model with an adapter, whose updates the end merges if that is wanted.
    """
    sites = _sparse_sites(model)  # raises if there are none
    live = LiveSettings(model)
    before = [config.sparse_hopfield for config in live.configs]
    frozen = {parameter: parameter.requires_grad for parameter in model.parameters()}
    names = (*_LEARNED, "alpha") if options.learn_alpha else _LEARNED
    adapted = None
    try:
        if options.rank is not None:
            _learn(model, live, HEAD_FIELDS, False)  # peft would put learned settings into the adapter
            adapted = add_low_rank(model, sites, options.rank)
        _learn(model, live, names, True)
        for parameter in model.parameters():
            parameter.requires_grad_(False)
        for site in _sparse_sites(model):
            for name, parameter in site.module.named_parameters(prefix=site.name):
                parameter.requires_grad_(adapted is None or is_low_rank(name) or _is_setting(name))
        yield adapted
        if adapted is not None and options.merge:
            adapted.merge_and_unload()
            adapted = None
    except BaseException:
        if adapted is not None:
            adapted.unload()
        adapted = None
        raise
    finally:
        for config, settings in zip(live.configs, before, strict=True):
            config.sparse_hopfield = settings
        bind(model)
        if adapted is None:
            for parameter, requires in frozen.items():
                parameter.requires_grad_(requires)


def _learn(model: PreTrainedModel, live: LiveSettings, names: Sequence[str], learned: bool) -> None:
    for config in live.configs:
        config.sparse_hopfield = config.sparse_hopfield.replace(**{f"learn_{name}": learned for name in names})
    bind(model)
