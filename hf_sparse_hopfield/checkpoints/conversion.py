# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Checkpoints from disk to disk: loaded by their architecture, written beside and verified, then renamed.

One copy of the weights is in memory at a time, and one shard while it is written.
"""

import gc
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub import snapshot_download
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
from transformers.utils import logging

from ..calibration.calibration import calibrate
from ..calibration.comparison import compare_with_dense
from ..calibration.report import CalibrationReport
from ..configuration import SparseHopfieldConfig
from ..evaluation import main_output
from ..files import check_output, new_directory
from ..hub.cards import CARD_FILE, PLOT_FILE
from ..hub.push import model_card
from ..integration.auto import PREFIX, sparse_model_class
from ..integration.convert import to_dense, to_sparse_hopfield
from ..integration.sites import attention_sites, shortened
from ..integration.upstream import ATTENTION_NAME
from ..remote_code import REMOTE_CODE_FILE
from ..sample_inputs import random_inputs


logger = logging.get_logger(__name__)

CALIBRATION_FILE = "calibration.json"
_CONFIG_FILE, _UNVERIFIED = "config.json", "config.json.unverified"
_COMPARED = 8  # batches
_TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-8}

# What is written anew, or says nothing true of the result: weights and what was exported from them, and our own files.
_OWN_FILES = {_CONFIG_FILE, CARD_FILE, PLOT_FILE, CALIBRATION_FILE, REMOTE_CODE_FILE}
_WEIGHTS = re.compile(r"\.(safetensors|bin|h5|msgpack|ot|pt|pth|ckpt|pb|gguf|onnx|onnx_data|tflite|index\.json)$")
# What is fetched of a checkpoint on the Hub; the numbered folders are the modules of sentence-transformers.
_FETCHED = ["*.json", "*.txt", "*.jinja", "*.model", "*.spm", "*.tiktoken", "*.py", "[0-9]*_*/*"]
_PROCESSOR_FILES = re.compile(r"token|vocab|merges|processor|\.(model|spm|tiktoken)$")


def load_model(path: str, *, config_file: str | None = None, **kwargs: Any) -> PreTrainedModel:
    """
    Load a checkpoint, dense or sparse, as the architecture that it was saved from, in its own dtype.

    Args:
        path (`str`): Local directory or Hub id.
        config_file (`str`, *optional*): Where its configuration is, if not in its place.
        **kwargs: For `from_pretrained`.
    """
    config = AutoConfig.from_pretrained(
        config_file or path, **{key: kwargs[key] for key in ("gguf_file", "revision") if key in kwargs}
    )
    kwargs = {"dtype": "auto", **kwargs, **({} if config_file is None else {"config": config})}
    names = [name.removeprefix(PREFIX) for name in config.architectures or []]
    base = next((getattr(transformers, name) for name in names if hasattr(transformers, name)), None)
    if base is None and "gguf_file" in kwargs:  # such a file names no class; what it holds is a language model
        base = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
    elif base is None:
        return _load_base_model(path, config.architectures, **kwargs)
    elif hasattr(type(config), "base_config_class"):
        base = sparse_model_class(base, type(config).base_config_class)
    return base.from_pretrained(path, **kwargs).eval()


def _load_base_model(path: str, architectures: list[str] | None, **kwargs: Any) -> PreTrainedModel:
    """A checkpoint that does not say what it was saved from is a base model, if that takes all its weights."""
    model, loading = AutoModel.from_pretrained(path, output_loading_info=True, **kwargs)
    if loading["unexpected_keys"]:
        raise ValueError(
            f"the configuration of {path!r} has architectures={architectures}, which tells no class of transformers, and as "
            f"{type(model).__name__} it would lose {shortened(sorted(loading['unexpected_keys']))}. Name the class in its "
            'config.json: "architectures": ["..."].'
        )
    return model.eval()


def load_tokenizer(path: str, **kwargs: Any) -> Any:
    """
    The processor or tokenizer of a checkpoint; `None` if it has none. One that is there and does not load is an error.

    Args:
        path (`str`): Local directory or Hub id.
        **kwargs: For `from_pretrained`.
    """
    if kwargs:  # a GGUF file holds a tokenizer and nothing else
        return AutoTokenizer.from_pretrained(path, **kwargs)
    files = [str(file) for file in _files_beside(path) if _PROCESSOR_FILES.search(file.name)]
    reasons = []
    for auto in (AutoProcessor, AutoTokenizer) if files else ():
        try:
            return auto.from_pretrained(path)
        except Exception as error:  # what is damaged may fail in any way
            reasons.append(error)
    if all(isinstance(reason, ImportError) for reason in reasons):
        for reason in reasons[:1]:
            logger.warning("The processor of %s needs a package that is not installed: %s", path, reason)
        return None
    raise ValueError(
        f"the tokenizer or processor of {path!r} does not load: {' '.join(str(reasons[-1]).split()) or reasons[-1]!r}. "
        f"Mend it, or remove its files ({shortened(files)}) for the model alone."
    )


def _files_beside(path: str) -> list[Path]:
    """
    What a checkpoint has besides the weights and the configuration of its model: those of its tokenizer, and what other
    libraries keep there. Paths in its directory.

    Args:
        path (`str`): Local directory or Hub id.
    """
    directory = _directory(path)
    try:
        modules = json.loads((directory / "modules.json").read_text(encoding="utf-8"))
        folders = [directory / module["path"] for module in modules if re.fullmatch(r"[\w-]+", module["path"])]
    except (OSError, ValueError, TypeError, KeyError):  # not of sentence-transformers
        folders = []
    files = [file for file in directory.iterdir() if file.name not in _OWN_FILES and not _WEIGHTS.search(file.name)]
    files += [file for folder in folders for file in sorted(folder.rglob("*"))]
    return [file.relative_to(directory) for file in files if file.is_file() and not file.name.startswith(".")]


def _directory(path: str) -> Path:
    return Path(path) if Path(path).is_dir() else Path(snapshot_download(path, allow_patterns=_FETCHED))


def gguf_options(file: str) -> dict[str, Any]:
    """Options of [`load_model`] to read a GGUF file, by its name in the directory: dequantised, in float32."""
    return {"gguf_file": file, "quantization_config": GgufConfig(dequantize=True), "dtype": "float32"}


def _shard_size(model: PreTrainedModel) -> int:
    """A shard is copied while it is written: an eighth of the model, but between 0.1 and 2 GB."""
    size = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    return min(2 * 10**9, max(10**8, size // 8))


@torch.no_grad()
def _sample(model: PreTrainedModel, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    with torch.random.fork_rng(devices=[]):  # some models draw what they look at
        torch.manual_seed(0)
        return main_output(model(**inputs))[1].float().clone()


def inputs_to_verify(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """Random inputs for [`save_verified`]. To be made before hours of work, not after."""
    try:
        return random_inputs(model)
    except ValueError as error:
        raise ValueError(
            f"{error} So the result could not be verified; --no_verify (verify=False) writes it without."
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
        inputs (`dict`, *optional*):
            From [`inputs_to_verify`]: load what was written and compare its outputs. `None`: do not verify.
        source (`str`, *optional*):
            The checkpoint it was made from. What that has besides weights and configuration, the new one gets, too.
        extra (`Callable`, *optional*): Called with the directory, to write more into it.

    Returns:
        `dict`: `difference`, the largest one between the outputs before and after; empty without verification.
    """
    model = holder.pop()
    with new_directory(output, overwrite, source=source) as directory:
        before = None if inputs is None else _sample(model, inputs)
        dtype, name = model.dtype, type(model).__name__
        model.save_pretrained(directory, max_shard_size=_shard_size(model))
        # Until it is verified it does not load, even if this process is killed.
        os.replace(directory / _CONFIG_FILE, directory / _UNVERIFIED)
        if tokenizer is not None:
            tokenizer.save_pretrained(directory)
        for file in [] if source is None else _files_beside(source):
            if not (directory / file).exists():
                (directory / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(_directory(source) / file, directory / file)
        if extra is not None:
            extra(directory)
        del model
        gc.collect()
        result = {} if inputs is None else {"difference": _verified(directory, name, dtype, inputs, before)}
        os.replace(directory / _UNVERIFIED, directory / _CONFIG_FILE)
    return result


def _verified(
    directory: Path, name: str, dtype: torch.dtype, inputs: dict[str, torch.Tensor], before: torch.Tensor
) -> float:
    """The largest difference between outputs of before and those of a checkpoint, which must be small."""
    again = load_model(str(directory), config_file=str(directory / _UNVERIFIED))
    if type(again).__name__ != name:
        raise RuntimeError(f"verification failed: {name} was written, {type(again).__name__} came back.")
    after = _sample(again, inputs)
    difference = float((after - before).masked_fill(after == before, 0).abs().max())  # also where both are infinite
    scale = float(before.abs().masked_fill(before.isinf(), 0).max().clamp_min(1))
    if not difference <= _TOLERANCE.get(dtype, 2e-2) * scale:
        raise RuntimeError(
            f"verification failed: outputs of the checkpoint differ by up to {difference:.3g} from those of the model "
            f"that was written (largest output {scale:.3g}). Nothing was kept."
        )
    return difference


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
    check_output(output, overwrite, source=source)  # before hours of work, not after
    model = load_model(source, **load_options)
    tokenizer = load_tokenizer(source, **{k: v for k, v in load_options.items() if k == "gguf_file"})
    if not hasattr(type(model), "base_model_class"):
        model = to_sparse_hopfield(model, config)
    elif config is not None:
        raise ValueError(
            f"{source!r} is sparse already ({type(model).__name__}); use calibrate to change its settings."
        )
    model = _released(model)
    verified_on = inputs_to_verify(model) if verify else None
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
    beside = None if "gguf_file" in load_options else source  # beside a GGUF file there may be anything
    return result | save_verified(
        holder, tokenizer, output, overwrite=overwrite, inputs=verified_on, source=beside, extra=extra
    )


def dense_checkpoint(
    source: str, output: str | os.PathLike, *, overwrite: bool = False, verify: bool = True
) -> dict[str, Any]:
    """
    Sparse checkpoint in, dense checkpoint of the original family out, with the same weights.

    Args:
        source, output, overwrite, verify: As for [`convert_checkpoint`].
    """
    check_output(output, overwrite, source=source)  # before hours of work, not after
    model, tokenizer = load_model(source), load_tokenizer(source)
    if not hasattr(type(model), "base_model_class"):
        raise ValueError(f"{source!r} is dense already ({type(model).__name__}).")
    holder = [to_dense(_released(model))]
    del model
    inputs = inputs_to_verify(holder[0]) if verify else None
    result = {"model": type(holder[0]).__name__}
    return result | save_verified(holder, tokenizer, output, overwrite=overwrite, inputs=inputs, source=source)


def _released(model: PreTrainedModel) -> PreTrainedModel:
    # transformers keeps the path that a configuration was read from; a checkpoint is not to carry it
    model.config._name_or_path = ""
    return model
