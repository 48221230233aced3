# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`distill`: train the attention of a sparse model until it does what the dense model did.

First each attention module learns to give the dense module's output on the dense module's input. Then the whole model learns the
dense model's outputs. The dense model is the same model: dense attention, and the weights that are trained as they were before.
"""

import dataclasses
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from accelerate.utils import broadcast_object_list, extract_model_from_parallel
from torch import nn
from transformers import PreTrainedModel, PrinterCallback, TrainerCallback, TrainingArguments

from ..configuration import HEAD_FIELDS
from ..files import naming_full_disk
from ..integration.binding import bind
from ..integration.model_settings import LiveSettings, apply_settings
from ..model_running import Batch, batch_size, evaluating
from ..progress import progress_bar
from ..training import SparseHopfieldArguments, SparseHopfieldTrainer
from ..training.progress import TrainerProgress
from ..training.resuming import checkpoint_fault
from .distillation_module import Distillation, is_setting, present_settings, sparse_sites
from .low_rank import add_low_rank, is_low_rank
from .recipe import DistillationOptions
from .report import DistillationReport
from .resume import batch_fingerprint, weights_fingerprint


_LEARNED = ("beta", "length_power")
_LOGGED = ("step", "loss", "layer_error", "divergence", "support")


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
        model ([`~transformers.PreTrainedModel`]):
            A sparse model. It is changed in place; if the distillation fails or is interrupted, it stays what it was.
        batches (sequence of `dict`): Model inputs, one batch per step and process. The last ones are held out for the report.
        teacher (`torch.nn.Module`, *optional*):
            The model to learn from. By default the model itself with dense attention and the weights it has now; only the
            trained weights exist twice.
        options ([`DistillationOptions`], *optional*): How to train.
        training_arguments ([`~transformers.TrainingArguments`], *optional*):
            Where to keep checkpoints, precision, logging and so on. Learning rate and number of steps come from `options`.
        resume_from_checkpoint (`str` or `bool`, *optional*):
            As for `Trainer.train`. A checkpoint of another model, other batches or other options is refused.
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
    _check_given(model, teacher, options, training_arguments)
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
        if training_arguments.world_size > 1:  # each process has calibrated by itself, and bits may differ
            apply_settings(model, broadcast_object_list([present_settings(model)])[0])
        stack.enter_context(evaluating(model))  # dropout would hide the difference that is to be learned
        identity = _identity(model, teacher, batches, options)
        adapted = stack.enter_context(_learning(model, options))
        distillation = Distillation(model, teacher, options, identity)
        stack.push(distillation.undo_failure)
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
        if trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
            raise ValueError(
                "distill needs whole weights in each process, not FSDP or DeepSpeed: use several processes without them."
            )
        trainer.remove_callback(PrinterCallback)  # it writes to stdout, which may be JSON
        with distillation.training_precision():
            trainer.train(resume_from_checkpoint)
        report.steps = trainer.state.global_step
        report.unit = "tokens" if _tokens_of(batches[0]) is not None else "samples"
        if teacher is not None:
            report.teacher = type(teacher).__name__
        seen = report.steps * _batches_per_step(training_arguments)
        report.tokens = sum(_tokens(trained_on[place % len(trained_on)]) for place in range(seen))
        report.log = [
            {name: entry[name] for name in _LOGGED if name in entry}
            for entry in trainer.state.log_history
            if "loss" in entry
        ]
        report.losses = [entry["loss"] for entry in report.log]
        bar.close()
        report.held_out["after"] = distillation.compare(held_out, progress)
        distillation.check_finite(report.held_out["after"]["divergence"])
        report.support = distillation.measured(held_out)
        report.changed = distillation.changed()
        settings = distillation.settings()
    apply_settings(model, settings)
    report.seconds = time.monotonic() - start
    return adapted if adapted is not None and not options.merge else model, report


class _DistillationTrainer(SparseHopfieldTrainer):
    """Logs what the distillation measures with the loss, so that every logger and the history have it. Leaves no half checkpoint."""

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """The trainer's `train`. A checkpoint that it could not finish is removed."""
        folder = str(self.args.output_dir)
        try:
            with naming_full_disk(folder):
                return super().train(*args, **kwargs)
        except BaseException:
            last = Path(folder, f"checkpoint-{self.state.global_step}")
            if self.args.should_save and not self.args.save_only_model and last.is_dir() and checkpoint_fault(last):
                shutil.rmtree(last)
            raise

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


def _identity(
    model: PreTrainedModel, teacher: nn.Module | None, batches: Sequence[Batch], options: DistillationOptions
) -> dict[str, str]:
    """What tells one distillation from another, by name."""
    chosen = dataclasses.asdict(dataclasses.replace(options, merge=True, holdout=None))
    weights = [weights_fingerprint(each) for each in (model, teacher) if each is not None]
    return {
        "the weights": repr(weights),
        "the first batch": batch_fingerprint(batches[0]),
        "the options": repr(chosen),
    }


def _is_on_cpu(model: nn.Module) -> bool:
    return next(model.parameters()).device.type == "cpu"


def _tokens_of(batch: Batch) -> torch.Tensor | None:
    tokens = batch.get("input_ids")
    return tokens if isinstance(tokens, torch.Tensor) else None


def _tokens(batch: Batch) -> int:
    tokens = _tokens_of(batch)
    return batch_size(batch) if tokens is None else tokens.numel()


def _checked(batches: Iterable[Batch]) -> list[Batch]:
    batches = list(batches)
    if len(batches) < 2:
        raise ValueError(
            f"batches has {len(batches)}: distillation needs at least 2, one to train on and one to hold out."
        )
    return batches


def _check_given(model: PreTrainedModel, teacher: Any, options: Any, arguments: TrainingArguments | None) -> None:
    if arguments is not None and arguments.gradient_checkpointing:
        raise ValueError(
            "training_arguments.gradient_checkpointing=True has no effect here: models checkpoint only in training mode, and "
            "distillation runs without dropout. Leave it out."
        )
    offloaded = [name for name, parameter in model.named_parameters() if parameter.is_meta]
    if offloaded:
        raise ValueError(
            f"{type(model).__name__} has weights that are not in memory (offloaded by device_map, such as {offloaded[0]!r}) and cannot be "
            "trained: load it without offloading."
        )
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


@contextmanager
def _learning(model: PreTrainedModel, options: DistillationOptions) -> Iterator[Any]:
    """
    Settings are learned, and nothing but sparse attention is trained, until the context ends. With a rank, the context is the
    model with an adapter, whose updates the end merges if that is wanted.
    """
    sites = sparse_sites(model)  # raises if there are none
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
        for site in sparse_sites(model):
            for name, parameter in site.module.named_parameters(prefix=site.name):
                parameter.requires_grad_(adapted is None or is_low_rank(name) or is_setting(name))
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
