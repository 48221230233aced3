# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Checkpoints from disk to disk: loaded by their architecture, written beside and renamed, verified by loading again.

One copy of the weights is in memory at a time, and one shard while it is written.
"""

import gc
import glob
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoProcessor,
    AutoTokenizer,
    GgufConfig,
    PreTrainedModel,
)

from ..configuration import SparseHopfieldConfig
from .auto import PREFIX, sparse_model_class
from .calibration import CalibrationReport, calibrate
from .convert import to_dense, to_sparse_hopfield
from .hub import model_card
from .inputs import random_inputs
from .refinement import compare_with_dense, main_output
from .settings import ATTENTION_NAME, attention_sites


try:
    import fcntl
except ImportError:  # Windows: what a killed process leaves stays there
    fcntl = None

CALIBRATION_FILE = "calibration.json"
_COMPARED = 8  # batches
_TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-8}


def load_model(path: str, **kwargs: Any) -> PreTrainedModel:
    """
    Load a checkpoint, dense or sparse, as the architecture that it was saved from, in its own dtype.

    Args:
        path (`str`): Local directory or Hub id.
        **kwargs: For `from_pretrained`.
    """
    config = AutoConfig.from_pretrained(
        path, **{key: kwargs[key] for key in ("gguf_file", "revision") if key in kwargs}
    )
    names = [name.removeprefix(PREFIX) for name in config.architectures or []]
    base = next((getattr(transformers, name) for name in names if hasattr(transformers, name)), None)
    if base is None and "gguf_file" in kwargs:  # such a file names no class; what it holds is a language model
        model_class = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
    elif base is None:
        model_class = AutoModel
    elif hasattr(type(config), "base_config_class"):
        model_class = sparse_model_class(base, type(config).base_config_class)
    else:
        model_class = base
    return model_class.from_pretrained(path, **{"dtype": "auto", **kwargs}).eval()


def load_tokenizer(path: str, **kwargs: Any) -> Any:
    """
    The processor or tokenizer of a checkpoint; `None` if it has none.

    Args:
        path (`str`): Local directory or Hub id.
        **kwargs: For `from_pretrained`.
    """
    if kwargs:  # a GGUF file holds a tokenizer and nothing else
        return AutoTokenizer.from_pretrained(path, **kwargs)
    for auto in (AutoProcessor, AutoTokenizer):
        try:
            return auto.from_pretrained(path)
        except (OSError, ValueError, KeyError, ImportError):
            continue
    return None


def gguf_options(file: str) -> dict[str, Any]:
    """Options of [`load_model`] to read a GGUF file, by its name in the directory: dequantised, in float32."""
    return {"gguf_file": file, "quantization_config": GgufConfig(dequantize=True), "dtype": "float32"}


@contextmanager
def new_directory(output: str | os.PathLike, overwrite: bool = False) -> Iterator[Path]:
    """
    A directory that appears under its name only when the context ends well.

    Args:
        output (`str`): Its name.
        overwrite (`bool`, *optional*, defaults to `False`): Replace what has this name already.

    Yields:
        `Path`: Where to write, beside `output`. If the context fails, it is removed.
    """
    output = Path(output).absolute()
    check_output(output, overwrite)
    output.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{output.name}.partial-", dir=output.parent))
    try:
        with _locked(beside):
            yield beside
            beside.chmod(0o777 & ~_umask())
            if output.exists():
                old = Path(tempfile.mkdtemp(prefix=f".{output.name}.old-", dir=output.parent))
                with _locked(old):
                    os.replace(output, old / output.name)
                    os.replace(beside, output)
                    shutil.rmtree(old)
            else:
                os.replace(beside, output)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def check_output(output: str | os.PathLike, overwrite: bool) -> None:
    """
    Refuse a directory that must not be replaced, and clear up what a killed process has left beside it.

    Args:
        output (`str`): Directory that is to be written.
        overwrite (`bool`): Whether it may be replaced.
    """
    output = Path(output).absolute()
    for old in output.parent.glob(f".{glob.escape(output.name)}.old-*"):
        with _locked(old) as abandoned:
            if abandoned and not output.exists() and (old / output.name).exists():
                os.replace(old / output.name, output)
                print(f"an interrupted run had put {str(output)!r} aside; it is back.", file=sys.stderr)
            if abandoned:
                shutil.rmtree(old, ignore_errors=True)
    for partial in output.parent.glob(f".{glob.escape(output.name)}.partial-*"):
        with _locked(partial) as abandoned:
            if abandoned:
                shutil.rmtree(partial, ignore_errors=True)
                print(f"removed {partial.name}, which an interrupted run had left.", file=sys.stderr)
    if output.exists() and not overwrite:
        raise FileExistsError(f"output {str(output)!r} exists already: choose another name or add --overwrite.")
    if output.exists() and not output.is_dir():
        raise NotADirectoryError(f"output {str(output)!r} is a file; it is to be a directory.")


@contextmanager
def _locked(directory: Path) -> Iterator[bool]:
    """Yields whether the directory could be locked. The lock ends with the process, however that ends."""
    if fcntl is None:
        yield False
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        locked = True
    except OSError:  # another process writes there, or the file system knows no locks
        locked = False
    try:
        yield locked
    finally:
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _shard_size(model: PreTrainedModel) -> int:
    """A shard is copied while it is written: an eighth of the model, but between 0.1 and 2 GB."""
    size = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    return min(2 * 10**9, max(10**8, size // 8))


@torch.no_grad()
def _sample(model: PreTrainedModel, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    return main_output(model(**inputs))[1].float().clone()


def save_verified(
    holder: list[PreTrainedModel],
    tokenizer: Any,
    output: str | os.PathLike,
    *,
    overwrite: bool = False,
    verify: bool = True,
    extra: Callable[[Path], None] | None = None,
) -> dict[str, float]:
    """
    Write a checkpoint, load it again and compare.

    Args:
        holder (`list`):
            With the model, which is taken out and given up before the checkpoint is loaded again: if the caller has no
            other reference to it, memory holds its weights only once.
        tokenizer (*optional*): Its processor or tokenizer.
        output (`str`): Directory.
        overwrite (`bool`, *optional*, defaults to `False`): Replace a directory that exists already.
        verify (`bool`, *optional*, defaults to `True`): Load what was written and compare its outputs on random inputs.
        extra (`Callable`, *optional*): Called with the directory, to write more into it.

    Returns:
        `dict`: `difference`, the largest one between the outputs before and after; empty without verification.
    """
    model = holder.pop()
    with new_directory(output, overwrite) as directory:
        inputs = random_inputs(model) if verify else {}
        before = _sample(model, inputs) if verify else None
        dtype, name = model.dtype, type(model).__name__
        model.save_pretrained(directory, max_shard_size=_shard_size(model))
        if tokenizer is not None:
            tokenizer.save_pretrained(directory)
        if extra is not None:
            extra(directory)
        if not verify:
            return {}
        del model
        gc.collect()
        again = load_model(str(directory))
        if type(again).__name__ != name:
            raise RuntimeError(f"verification failed: {name} was written, {type(again).__name__} came back.")
        after = _sample(again, inputs)
        difference = float((after - before).abs().max())
        scale = float(before.abs().max().clamp_min(1))
        if not difference <= _TOLERANCE.get(dtype, 2e-2) * scale:
            raise RuntimeError(
                f"verification failed: outputs of the checkpoint differ by up to {difference:.3g} from those of the model "
                f"that was written (largest output {scale:.3g}). Nothing was kept."
            )
    return {"difference": difference}


def convert_checkpoint(
    source: str,
    output: str | os.PathLike,
    config: SparseHopfieldConfig | dict | None = None,
    *,
    batches: Callable[[PreTrainedModel, Any], list[dict[str, torch.Tensor]]] | None = None,
    calibration: dict[str, Any] | None = None,
    overwrite: bool = False,
    verify: bool = True,
    command: str | None = None,
    **load_options: Any,
) -> dict[str, Any]:
    """
    Checkpoint in, sparse checkpoint out: weights, tokenizer, configuration, calibration report, model card.

    Args:
        source (`str`): Local directory or Hub id of a dense model; or of a sparse one, to calibrate it anew.
        output (`str`): Directory for the sparse one.
        config ([`SparseHopfieldConfig`] or `dict`, *optional*):
            The settings to convert with. A sparse model has its own: for it this must be `None`.
        batches (`Callable`, *optional*): Called with model and tokenizer, gives what to calibrate on. `None`: no calibration.
        calibration (`dict`, *optional*): Arguments for [`calibrate`].
        overwrite (`bool`, *optional*, defaults to `False`): Replace a directory that exists already.
        verify (`bool`, *optional*, defaults to `True`): Load what was written and compare.
        command (`str`, *optional*): For the model card.
        **load_options: For `from_pretrained`, such as `gguf_file`.

    Returns:
        `dict`: `model` (name of its class), `layers` (how many attention modules are sparse), `comparison` with the dense
        model where there was something to calibrate on, and `difference` after loading again.
    """
    check_output(output, overwrite)  # before hours of work, not after
    tokenizer = load_tokenizer(source, **{k: v for k, v in load_options.items() if k == "gguf_file"})
    model = load_model(source, **load_options)
    if not hasattr(type(model), "base_model_class"):
        model = to_sparse_hopfield(model, config)
    elif config is not None:
        raise ValueError(
            f"{source!r} is sparse already ({type(model).__name__}); use calibrate to change its settings."
        )
    model = _released(model)
    result: dict[str, Any] = {"model": type(model).__name__}
    report: CalibrationReport | None = None
    if batches is not None:
        inputs = batches(model, tokenizer)
        model, report = calibrate(model, inputs, **(calibration or {}))
        result["comparison"] = compare_with_dense(model, inputs[:_COMPARED])
        result["calibration"] = report
    card = model_card(
        model, base_model=source, calibration=report, comparison=result.get("comparison"), command=command
    )
    result["layers"] = sum(getattr(site.module, ATTENTION_NAME, None) is not None for site in attention_sites(model))

    def extra(directory: Path) -> None:
        card.save(directory / "README.md")
        if report is not None:
            report.save(directory / CALIBRATION_FILE)

    holder = [model]
    del model
    return result | save_verified(holder, tokenizer, output, overwrite=overwrite, verify=verify, extra=extra)


def dense_checkpoint(
    source: str, output: str | os.PathLike, *, overwrite: bool = False, verify: bool = True
) -> dict[str, Any]:
    """
    Sparse checkpoint in, dense checkpoint of the original family out, with the same weights.

    Args:
        source, output, overwrite, verify: As for [`convert_checkpoint`].
    """
    check_output(output, overwrite)  # before hours of work, not after
    tokenizer, model = load_tokenizer(source), load_model(source)
    if not hasattr(type(model), "base_model_class"):
        raise ValueError(f"{source!r} is dense already ({type(model).__name__}).")
    holder = [to_dense(_released(model))]
    del model
    result = {"model": type(holder[0]).__name__}
    return result | save_verified(holder, tokenizer, output, overwrite=overwrite, verify=verify)


def _released(model: PreTrainedModel) -> PreTrainedModel:
    # transformers keeps the path that a configuration was read from; a checkpoint is not to carry it
    model.config._name_or_path = ""
    return model
