# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The module that distillation trains: a sparse model beside its teacher, the dense one."""

import hashlib
import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from ..integration.binding import LayerRetrieval
from ..integration.sites import Site, attention_sites
from ..model_running import Batch, evaluating, main_output, on_device
from ..observation import OwnSettings, observed, own_settings
from .comparison import (
    compare_with_dense,
    counted_positions,
    divergence,
    takes_decoder_inputs,
    twin,
)
from .low_rank import relative_change
from .recipe import DistillationOptions
from .support_constraint import SupportConstraint, SupportMeter


_DECODER_INPUTS = ("decoder_input_ids", "decoder_inputs_embeds")
_HALVES = (torch.bfloat16, torch.float16)
_MEASURED_ROWS = 16
_MEASURED_EVERY = 4  # steps: a measurement takes a fifth of a step


class Distillation(nn.Module):
    """
    The module that is trained: its forward pass runs both models on a batch and returns how far they are apart.

    Its state is what is trained and nothing else, so checkpoints are small.

    Args:
        model ([`~transformers.PreTrainedModel`]): The sparse model, with learned settings.
        teacher (`torch.nn.Module`, *optional*): The dense one; the model itself by default.
        options ([`DistillationOptions`]): How to train.
        identity (`dict[str, str]`, *optional*): What tells one distillation from another, by name, for checkpoints.
    """

    # What `load_state_dict` returns: the trainer would take the weights that are not in a checkpoint for missing ones.
    _COMPLETE = nn.Module().load_state_dict({})

    identity: torch.Tensor

    def __init__(
        self,
        model: PreTrainedModel,
        teacher: nn.Module | None,
        options: DistillationOptions,
        identity: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self.model, self.options = model, options
        self._teacher = [teacher]  # in a list: it is no part of what is trained
        self.sites = {site.name: site for site in sparse_sites(model)}
        self.constraint = SupportConstraint(self.retrievals, options.max_support, options.budget)
        digests = [list(hashlib.sha256(value.encode()).digest()) for value in (identity or {}).values()]
        self.register_buffer("identity", torch.tensor(digests, dtype=torch.uint8))
        self._identified = list(identity or {})
        trained = {name: each for name, each in model.named_parameters() if each.requires_grad}
        copies = {name: each.detach().clone() for name, each in trained.items()}
        self.before = {name: copy for name, copy in copies.items() if not is_setting(name)}
        self._settings_before = {name: copy for name, copy in copies.items() if is_setting(name)}
        if getattr(model, "hf_device_map", None):
            self.hf_device_map = model.hf_device_map  # or the trainer would move all of the model to one device
        self._in_decoder = _names_in_decoder(model) & self.sites.keys()
        self.step = 0
        self.is_measured = False
        self._half: torch.dtype | None = None  # what the model runs in, while trained weights are in float32
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
        self.check_finite(distance)
        self._logged.append(distance)
        if self.constraint.max_support is not None or not self.is_by_layers:  # the budget is for outputs
            self.constraint.adjust(distance)

    def check_finite(self, distance: float) -> None:
        """Raise an error if the outputs have left the numbers."""
        if not math.isfinite(distance):
            raise ValueError(
                f"distilling met a divergence of {distance} in step {self.step + 1}: look for NaN or infinity in the batches and in the "
                f"outputs of the dense model, for batches that are padding only, or lower learning_rate={self.options.weights_learning_rate}."
            )

    @torch.no_grad()
    def undo_failure(self, kind: type[BaseException] | None, error: BaseException | None, traceback: Any) -> None:
        """Give the model what it had before, if there is an error. The last step of a context manager."""
        if kind is None:
            return
        parameters = dict(self.model.named_parameters())
        for name, before in (*self.before.items(), *self._settings_before.items()):
            parameters[name].data.copy_(before)  # in its precision

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
        with observed(self.model, meter) as parameters, self._autocast():
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
        return torch.stack([loss.to(losses[0].device) for loss in losses]).mean()  # a device_map may spread them

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
    def training_precision(self) -> Iterator[None]:
        """
        Trained matrices in half precision are in float32, until the context ends: small updates would be rounded away. The model runs in
        its own precision, by autocast.
        """
        linear = [module for module in self.model.modules() if isinstance(module, (nn.Linear, Conv1D))]
        matrices = {id(weight) for module in linear for weight in module.parameters(recurse=False)}
        halves = {
            weight: weight.dtype
            for name, weight in self.model.named_parameters()
            if name in self.before and id(weight) in matrices and weight.dtype in _HALVES
        }
        self._half = next(iter(halves.values()), None)
        try:
            for weight in halves:
                weight.data = weight.data.float()
            yield
        finally:
            for weight, dtype in halves.items():
                weight.grad = None  # of the other dtype
                weight.data = weight.data.to(dtype)
            self._half = None

    def _autocast(self) -> AbstractContextManager[Any]:
        return nullcontext() if self._half is None else torch.autocast(self.model.device.type, self._half)

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
        return present_settings(self.model)

    def train(self, mode: bool = True) -> "Distillation":
        """As of any module, but the model stays in evaluation mode."""
        super().train(mode)
        self.model.eval()
        return self

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """What is trained, the state of the constraint, and whose state it is."""
        trained = {name for name, parameter in self.named_parameters() if parameter.requires_grad}
        state = super().state_dict(*args, **kwargs)
        ours = ("constraint.", "identity")
        return {name: value for name, value in state.items() if name in trained or name.startswith(ours)}

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        """Load what [`~Distillation.state_dict`] returns; anything else is refused."""
        missing = self.state_dict().keys() ^ state_dict.keys()
        if missing:
            raise ValueError(
                f"the checkpoint is of another distillation: {sorted(missing)[:3]} are in only one of them."
            )
        rows = zip(self._identified, self.identity.cpu(), state_dict["identity"].cpu(), strict=True)
        differing = [name for name, own, other in rows if not torch.equal(own, other)]
        if differing:
            raise ValueError(
                f"the checkpoint is of another distillation (not the same: {', '.join(differing)}): remove it, or keep checkpoints in "
                "another folder."
            )
        super().load_state_dict(state_dict, strict=False, assign=assign)
        return type(self)._COMPLETE


def sparse_sites(model: PreTrainedModel) -> list[Site]:
    """The attention modules that distillation trains; an error if there are none."""
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


def present_settings(model: PreTrainedModel) -> dict[str, dict[str, torch.Tensor]]:
    """The settings of each sparse attention module, one per head."""
    result = {}
    for site in sparse_sites(model):
        values = own_settings(site.module.sparse_hopfield)._asdict()  # type: ignore[arg-type]
        result[site.name] = {key: torch.as_tensor(value).detach().cpu().reshape(-1) for key, value in values.items()}
    return result


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


def is_setting(name: str) -> bool:
    """Whether a parameter with this name is a setting, such as beta, and no weight."""
    return ".sparse_hopfield." in f".{name}"
