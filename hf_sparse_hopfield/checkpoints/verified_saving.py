# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Checkpoints that are written, loaded again and compared with the model before they appear.

Memory holds one copy of the weights at a time: safetensors writes tensors from where they are.
"""

import gc
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from ..files import new_directory
from ..model_running import main_output
from ..progress import stage
from ..sample_inputs import random_inputs
from .companion_files import copy_companion_files
from .known_files import CONFIG_FILE
from .loading import load_model


_UNVERIFIED = f"{CONFIG_FILE}.unverified"
_TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-8}
_LOW_PRECISION_TOLERANCE = 2e-2


def inputs_to_verify(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """Random inputs for [`save_verified`]. Make them before hours of work, because they may fail."""
    try:
        return random_inputs(model)
    except ValueError as error:
        raise ValueError(
            f"{error} The result could not be verified; --no_verify (verify=False) writes it without verification."
        ) from error


def save_verified(
    holder: list[PreTrainedModel],
    tokenizer: Any,
    output: str | os.PathLike,
    *,
    overwrite: bool = False,
    inputs: dict[str, torch.Tensor] | None,
    source: str | None = None,
    extra: Callable[[Path], None] | None = None,
    progress: bool = False,
) -> dict[str, float]:
    """
    Write a checkpoint, load it again and compare its outputs with those of the model.

    Args:
        holder (`list`):
            A list with the model. The model is taken out and released before the checkpoint is loaded again: if the caller
            has no other reference to it, memory holds its weights only once.
        tokenizer (*optional*): Its processor or tokenizer.
        output (`str`): Directory to write.
        overwrite (`bool`, *optional*, defaults to `False`): Replace a directory that this function wrote.
        inputs (`dict`, *optional*): Inputs from [`inputs_to_verify`]. `None` skips the verification.
        source (`str`, *optional*): The checkpoint it was made from. Its companion files are copied.
        extra (`Callable`, *optional*): Called with the directory, to write more into it.
        progress (`bool`, *optional*, defaults to `False`): Show progress.

    Returns:
        `dict`: `difference`, the largest difference between the outputs of the model in memory and of the one loaded from
        disk; empty without verification.
    """
    model = holder.pop()
    with new_directory(output, overwrite, source=source) as directory:
        before = None if inputs is None else _Outputs.of(model, inputs)
        with stage(f"writing {output}", progress):
            model.save_pretrained(directory)
        # Without its config.json the checkpoint does not load, even if this process is killed before the verification.
        os.replace(directory / CONFIG_FILE, directory / _UNVERIFIED)
        del model
        gc.collect()
        if tokenizer is not None:
            tokenizer.save_pretrained(directory)
        if source is not None:
            copy_companion_files(source, directory)
        if extra is not None:
            extra(directory)
        result = {}
        if before is not None:
            with stage("loading it again, to compare", progress):
                result["difference"] = _verify(directory, before)
        os.replace(directory / _UNVERIFIED, directory / CONFIG_FILE)
    return result


@dataclass
class _Outputs:
    """The outputs of a model on some inputs, with its class and dtype."""

    class_name: str
    dtype: torch.dtype
    inputs: dict[str, torch.Tensor]
    values: torch.Tensor

    @classmethod
    @torch.no_grad()
    def of(cls, model: PreTrainedModel, inputs: dict[str, torch.Tensor]) -> "_Outputs":
        with torch.random.fork_rng(devices=[]):  # some models sample
            torch.manual_seed(0)
            values = main_output(model(**inputs))[1].float().clone()
        return cls(type(model).__name__, model.dtype, inputs, values)


def _verify(directory: Path, before: _Outputs) -> float:
    """The largest difference between the outputs of a model and those of its checkpoint; an error if it is large."""
    loaded = load_model(str(directory), config_file=str(directory / _UNVERIFIED))
    after = _Outputs.of(loaded, before.inputs)
    if after.class_name != before.class_name:
        raise RuntimeError(f"verification failed: {before.class_name} was written, {after.class_name} was loaded.")
    equal = after.values == before.values  # also where both are infinite
    difference = float((after.values - before.values).masked_fill(equal, 0).abs().max())
    scale = float(before.values.abs().masked_fill(before.values.isinf(), 0).max().clamp_min(1))
    if not difference <= _TOLERANCE.get(before.dtype, _LOW_PRECISION_TOLERANCE) * scale:
        raise RuntimeError(
            f"verification failed: outputs of the checkpoint differ by up to {difference:.3g} from those of the model "
            f"that was written (largest output {scale:.3g}). Nothing was kept."
        )
    return difference
