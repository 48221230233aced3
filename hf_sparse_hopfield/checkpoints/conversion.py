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
from ..calibration.distillation import distill
from ..calibration.report import CalibrationReport, DistillationReport
from ..configuration import SparseHopfieldConfig
from ..files import check_output
from ..hub.cards import CARD_FILE, model_card
from ..hub.support_plot import support_sizes
from ..integration.binding import is_converted
from ..integration.convert import to_dense, to_sparse_hopfield
from ..integration.sites import attention_sites
from ..integration.upstream import ATTENTION_NAME
from ..processes import is_main_process, others_wait
from ..progress import stage
from .companion_files import check_links
from .known_files import CALIBRATION_FILE, DISTILLATION_FILE
from .loading import check_source, load_model, load_tokenizer
from .verified_saving import inputs_to_verify, save_verified


_HELD_OUT = (
    8  # batches that neither calibration nor distillation sees, at most, for the comparison with the dense model
)


def convert_checkpoint(
    source: str,
    output: str | os.PathLike,
    config: SparseHopfieldConfig | dict | None = None,
    *,
    batches: Callable[[PreTrainedModel, Any], list[dict[str, torch.Tensor]]] | None = None,
    calibration: dict[str, Any] | None = None,
    distillation: dict[str, Any] | None = None,
    measured_on: str | None = None,
    overwrite: bool = False,
    verify: bool = True,
    progress: bool = True,
    command: str | None = None,
    **load_options: Any,
) -> dict[str, Any]:
    """
    Convert a dense checkpoint to a sparse one, with tokenizer, configuration, calibration report and model card; or
    calibrate a sparse one again.

    In several processes (`accelerate launch`, `torchrun`), all of them distil, and the main process writes while the others wait.

    Args:
        source (`str`): Local directory or Hub id of a dense model; or of a sparse one, to calibrate it again.
        output (`str`): Directory to write.
        config ([`SparseHopfieldConfig`] or `dict`, *optional*):
            The settings to convert with. A sparse model has its own settings and needs `None`.
        batches (`Callable`, *optional*):
            Called with the model and the tokenizer; returns the batches to calibrate on. The last ones (up to 8, at most a
            fifth) are held out, for the comparison with the dense model. `None` skips calibration.
        calibration (`dict`, *optional*): Arguments for [`calibrate`].
        distillation (`dict`, *optional*): Arguments for [`distill`], which follows calibration. `None` skips it.
        measured_on (`str`, *optional*): What the batches are, for the model card.
        overwrite (`bool`, *optional*, defaults to `False`):
            Replace an existing directory, if it holds only what this package wrote.
        verify (`bool`, *optional*, defaults to `True`): Load the result and compare its outputs.
        progress (`bool`, *optional*, defaults to `True`): Show progress.
        command (`str`, *optional*): The command line, for the model card.
        **load_options: For `from_pretrained`, such as `gguf_file`.

    Returns:
        `dict`: `model` (the name of its class), `layers` (the number of sparse attention modules), with calibration also
        `calibration` (a [`CalibrationReport`]), `comparison` with the dense model on held-out batches, with distillation also
        `distillation` (a [`DistillationReport`]), and with verification `difference`,
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
    with stage(f"loading {source}", progress):
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
    distilled: DistillationReport | None = None
    support: dict[str, list[float]] | None = None
    if batches is not None:
        inputs, held_out = _held_out(batches(model, tokenizer))
        model, report = calibrate(model, inputs, **{"progress": progress, **(calibration or {})})
        if distillation is None:
            result["comparison"] = compare_with_dense(model, held_out, progress=progress)
        result["calibration"] = report
        if distillation is not None:
            every = [*inputs, *held_out]
            model, distilled = distill(
                model, every, **{"progress": progress, **distillation, "holdout": len(held_out)}
            )
            result |= {"distillation": distilled, "comparison": distilled.held_out["after"]}
        support = support_sizes(model, held_out) if distilled is None else distilled.support
        shares = [share for layer in support.values() for share in layer]
        found = {"mean_support": sum(shares) / len(shares), "held_out_batches": len(held_out)}
        result["comparison"] = {**result["comparison"], **found}
    elif distillation is not None:
        raise ValueError("distillation needs batches: give a function that makes them.")
    card = model_card(
        model,
        base_model=source,
        calibration=report,
        distillation=distilled,
        support=support,
        comparison=result.get("comparison"),
        measured_on=measured_on,
        command=command,
    )
    result["layers"] = sum(getattr(site.module, ATTENTION_NAME, None) is not None for site in attention_sites(model))

    def extra(directory: Path) -> None:
        card.save(directory / CARD_FILE)
        if report is not None:
            report.save(directory / CALIBRATION_FILE)
        if distilled is not None:
            distilled.save(directory / DISTILLATION_FILE)

    holder = [model]
    del model
    copied_from = None if "gguf_file" in load_options else source  # the folder of a GGUF file may hold anything
    with others_wait() as is_writing:
        if is_writing:
            result |= save_verified(
                holder,
                tokenizer,
                output,
                overwrite=overwrite,
                inputs=verified_on,
                source=copied_from,
                extra=extra,
                progress=progress,
            )
    return result


def dense_checkpoint(
    source: str, output: str | os.PathLike, *, overwrite: bool = False, verify: bool = True, progress: bool = True
) -> dict[str, Any]:
    """
    Convert a sparse checkpoint to a dense one of its original family, with the same weights.

    Args:
        source (`str`): Local directory or Hub id of a sparse model.
        output, overwrite, verify, progress: As for [`convert_checkpoint`].

    Returns:
        `dict`: `model` (the name of its class), and with verification `difference`, as for [`convert_checkpoint`].
    """
    _check(source, output, overwrite)
    with stage(f"loading {source}", progress):
        model, tokenizer = load_model(source), load_tokenizer(source)
    if not is_converted(model):
        raise ValueError(f"{source!r} is already dense ({type(model).__name__}).")
    _forget_path(model)
    holder = [to_dense(model)]
    del model
    inputs = inputs_to_verify(holder[0]) if verify else None
    result = {"model": type(holder[0]).__name__}
    return result | save_verified(
        holder, tokenizer, output, overwrite=overwrite, inputs=inputs, source=source, progress=progress
    )


def with_held_out(count: int) -> int:
    """Return how many batches it takes to calibrate on `count` of them, as some are held out."""
    return count + max(1, min(_HELD_OUT, count // 4))


def _held_out(batches: list[dict[str, torch.Tensor]]) -> tuple[list, list]:
    """The batches to calibrate on, and those to compare on."""
    if len(batches) < 2:
        raise ValueError(
            f"there are {len(batches)} batches: at least 2 are needed, one to calibrate on and one to compare with the dense model on."
        )
    count = max(1, min(_HELD_OUT, len(batches) // 5))
    return batches[:-count], batches[-count:]


def _check(source: str, output: str | os.PathLike, overwrite: bool) -> None:
    """Refuse what cannot be read or written, before any work."""
    check_source(source)
    check_links(source)
    if is_main_process():  # the others do not write
        check_output(output, overwrite, source=source)


def _forget_path(model: PreTrainedModel) -> None:
    """transformers keeps the path that a configuration was read from; a checkpoint must not carry it."""
    model.config.name_or_path = ""
