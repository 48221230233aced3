# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Dense checkpoints to sparse ones, and back."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from ..calibration.calibration import calibrate
from ..calibration.comparison import compare_with_dense
from ..calibration.report import CalibrationReport
from ..configuration import SparseHopfieldConfig
from ..files import check_output
from ..hub.cards import CARD_FILE, model_card
from ..integration.binding import is_converted
from ..integration.convert import to_dense, to_sparse_hopfield
from ..integration.sites import attention_sites
from ..integration.upstream import ATTENTION_NAME
from .companion_files import check_links
from .known_files import CALIBRATION_FILE
from .loading import check_source, load_model, load_tokenizer
from .verified_saving import inputs_to_verify, save_verified


_COMPARED_BATCHES = 8


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
    Convert a dense checkpoint to a sparse one, with tokenizer, configuration, calibration report and model card; or
    calibrate a sparse one again.

    Args:
        source (`str`): Local directory or Hub id of a dense model; or of a sparse one, to calibrate it again.
        output (`str`): Directory to write.
        config ([`SparseHopfieldConfig`] or `dict`, *optional*):
            The settings to convert with. A sparse model has its own settings and needs `None`.
        batches (`Callable`, *optional*):
            Called with the model and the tokenizer; returns the batches to calibrate on. `None` skips calibration.
        calibration (`dict`, *optional*): Arguments for [`calibrate`].
        overwrite (`bool`, *optional*, defaults to `False`):
            Replace an existing directory, if it holds only what this package wrote.
        verify (`bool`, *optional*, defaults to `True`): Load the result and compare its outputs.
        command (`str`, *optional*): The command line, for the model card.
        **load_options: For `from_pretrained`, such as `gguf_file`.

    Returns:
        `dict`: `model` (the name of its class), `layers` (the number of sparse attention modules), with calibration also
        `calibration` (a [`CalibrationReport`]) and `comparison` with the dense model, and with verification `difference`,
        the largest difference between the outputs of the sparse model in memory and of the one loaded from disk. It says
        that nothing was lost in saving, and nothing about the dense model.

    Example:

    ```python
    >>> from transformers import BertConfig, BertModel
    >>> from hf_sparse_hopfield.checkpoints import convert_checkpoint

    >>> config = BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, vocab_size=100)
    >>> BertModel(config).save_pretrained("dense")
    >>> result = convert_checkpoint("dense", "sparse", {"alpha": 1.5})
    >>> result["model"], result["layers"]
    ('SparseHopfieldBertModel', 2)

    ```
    """
    _check(source, output, overwrite)
    model = load_model(source, **load_options)
    tokenizer = load_tokenizer(source, **{k: v for k, v in load_options.items() if k == "gguf_file"})
    if not is_converted(model):
        model = to_sparse_hopfield(model, config)
    elif config is not None:
        raise ValueError(
            f"{source!r} is already sparse ({type(model).__name__}); use calibrate to change its settings."
        )
    _forget_path(model)
    verified_on = inputs_to_verify(model) if verify else None
    result: dict[str, Any] = {"model": type(model).__name__}
    report: CalibrationReport | None = None
    if batches is not None:
        inputs = batches(model, tokenizer)
        model, report = calibrate(model, inputs, **(calibration or {}))
        result["comparison"] = compare_with_dense(model, inputs[:_COMPARED_BATCHES])
        result["calibration"] = report
    card = model_card(
        model, base_model=source, calibration=report, comparison=result.get("comparison"), command=command
    )
    result["layers"] = sum(getattr(site.module, ATTENTION_NAME, None) is not None for site in attention_sites(model))

    def extra(directory: Path) -> None:
        card.save(directory / CARD_FILE)
        if report is not None:
            report.save(directory / CALIBRATION_FILE)

    holder = [model]
    del model
    copied_from = None if "gguf_file" in load_options else source  # the folder of a GGUF file may hold anything
    return result | save_verified(
        holder, tokenizer, output, overwrite=overwrite, inputs=verified_on, source=copied_from, extra=extra
    )


def dense_checkpoint(
    source: str, output: str | os.PathLike, *, overwrite: bool = False, verify: bool = True
) -> dict[str, Any]:
    """
    Convert a sparse checkpoint to a dense one of its original family, with the same weights.

    Args:
        source (`str`): Local directory or Hub id of a sparse model.
        output, overwrite, verify: As for [`convert_checkpoint`].

    Returns:
        `dict`: `model` (the name of its class), and with verification `difference`, as for [`convert_checkpoint`].
    """
    _check(source, output, overwrite)
    model, tokenizer = load_model(source), load_tokenizer(source)
    if not is_converted(model):
        raise ValueError(f"{source!r} is already dense ({type(model).__name__}).")
    _forget_path(model)
    holder = [to_dense(model)]
    del model
    inputs = inputs_to_verify(holder[0]) if verify else None
    result = {"model": type(holder[0]).__name__}
    return result | save_verified(holder, tokenizer, output, overwrite=overwrite, inputs=inputs, source=source)


def _check(source: str, output: str | os.PathLike, overwrite: bool) -> None:
    """Refuse what cannot be read or written, before any work."""
    check_source(source)
    check_links(source)
    check_output(output, overwrite, source=source)


def _forget_path(model: PreTrainedModel) -> None:
    """transformers keeps the path that a configuration was read from; a checkpoint must not carry it."""
    model.config.name_or_path = ""
