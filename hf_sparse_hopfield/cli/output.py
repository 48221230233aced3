# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""What commands do with their result: write the checkpoint, upload it, print a summary."""

import argparse
import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..calibration.recipe import usual_batches
from ..extras import require
from .arguments import (
    calibration_options,
    check_file,
    check_push,
    check_text,
    distillation_options,
    given,
    make_batches,
    show_progress,
    text_names,
)


_NOT_CALIBRATED = (
    "warning: the result is not calibrated. With alpha {alpha:g} and the scaling of the dense model, a pretrained model does "
    "poorly: calibrate it (convert again with --text FILE, or --random for models that take no text) or fine-tune it."
)
# What a row of the summary means, where its name alone could be misunderstood.
_LABELS = {"difference": "difference between the model in memory and the one loaded from disk"}


def write_checkpoint(arguments: argparse.Namespace, convert: Callable[..., dict[str, Any]], **options: Any) -> None:
    """
    Convert a checkpoint, upload it if that was asked for, and show the result.

    Args:
        arguments (`argparse.Namespace`): With `source`, `output` and those of [`add_output_arguments`].
        convert (`Callable`): A conversion of [`~hf_sparse_hopfield.checkpoints`].
        **options: More arguments for it.
    """
    check_push(arguments)
    result = convert(
        arguments.source,
        arguments.output,
        overwrite=arguments.overwrite,
        verify=not arguments.no_verify,
        **options,
    )
    show(arguments, {"output": arguments.output, **result, **push(arguments, arguments.output)}, arguments.source)


def write_sparse(arguments: argparse.Namespace, config: dict[str, Any] | None, **load_options: Any) -> None:
    """
    Convert or calibrate a checkpoint according to the arguments, and show the result.

    Args:
        arguments (`argparse.Namespace`): With those of all groups above.
        config (`dict`, *optional*): The settings to convert with.
        **load_options: For `from_pretrained`.
    """
    from ..calibration.calibration import planned_refinement
    from ..checkpoints.conversion import convert_checkpoint, with_held_out
    from ..integration import uncalibrated

    check_push(arguments)
    check_text(arguments)
    check_file(arguments.resume_from)
    calibration: dict[str, Any] = {}
    if arguments.text is not None or arguments.random:
        options, distilling = calibration_options(arguments), distillation_options(arguments)

        def batches(model: Any, tokenizer: Any) -> list[dict[str, Any]]:
            usual = usual_batches(planned_refinement(model, options))
            if distilling is not None:
                usual = max(usual, distilling.total_steps)
            wanted = usual if arguments.batches is None else arguments.batches
            count = wanted if wanted == sys.maxsize else with_held_out(wanted)
            return make_batches(arguments, model, tokenizer, count, least=2)

        calibration = {
            "batches": batches,
            "calibration": {
                "options": options,
                "resume_from": arguments.resume_from,
                "progress": show_progress(arguments),
            },
            "measured_on": "random inputs" if arguments.random else text_names(arguments),
        }
        if distilling is not None:
            calibration["distillation"] = {"options": distilling, **_training(arguments)}
    with uncalibrated.silenced():  # the warning below names the options of the command
        result = convert_checkpoint(
            arguments.source,
            arguments.output,
            config,
            **calibration,
            overwrite=arguments.overwrite,
            verify=not arguments.no_verify,
            command=shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
            **load_options,
        )
    if not calibration and config is not None and config["alpha"] > 1:
        print(_NOT_CALIBRATED.format(alpha=config["alpha"]), file=sys.stderr)
    show(
        arguments,
        {"output": arguments.output, **_summary(result), **push(arguments, arguments.output)},
        arguments.source,
    )


def _training(arguments: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `distill` for where and how it trains."""
    import torch
    from transformers import TrainingArguments

    from ..training import last_whole_checkpoint

    found: dict[str, Any] = {"progress": show_progress(arguments)}
    if not given(arguments, ("bf16", "checkpoints")):
        return found
    folder = arguments.checkpoints
    keep: dict[str, Any] = {"save_strategy": "no"} if folder is None else {"save_steps": 50, "save_total_limit": 2}
    return found | {
        "training_arguments": TrainingArguments(
            folder,
            bf16=bool(arguments.bf16),
            use_cpu=not torch.cuda.is_available(),
            report_to=[],
            logging_steps=10,
            **keep,
        ),
        "resume_from_checkpoint": None if folder is None else last_whole_checkpoint(folder),
    }


def _summary(result: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a conversion, with a summary in place of the calibration report."""
    report = result.get("calibration")
    result = result | {"calibration": None}
    distilled = result.pop("distillation", None)
    if distilled is not None:
        result["distillation"] = {
            "steps": distilled.steps,
            "tokens": distilled.tokens,
            "divergence_before": distilled.held_out["before"]["divergence"],
            "divergence": distilled.held_out["after"]["divergence"],
            "mean_support": distilled.mean_support,
            "seconds": distilled.seconds,
        }
    if report is not None:
        result["calibration"] = {
            "batches": report.batches,
            "mean_alpha": report.mean("alpha"),
            "mean_beta": report.mean("beta"),
            "mean_error": report.mean("error"),
            "mean_support": report.mean("support"),
            "refined": len(report.refined),
            "seconds": report.seconds,
            **({"budget": report.budget} if report.budget else {}),
            **({"warnings": report.warnings} if report.warnings else {}),
        }
    return result


def push(arguments: argparse.Namespace, folder: str) -> dict[str, str]:
    """Upload the result if `--push_to_hub` asks for it."""
    if arguments.push_to_hub is None:
        return {}
    from ..hub.push import push_folder

    return {"pushed": push_folder(folder, arguments.push_to_hub, arguments.private or None)}


def show(arguments: argparse.Namespace, result: dict[str, Any], title: str) -> None:
    """Print a result, as a table or as JSON."""
    if arguments.json:
        print(json.dumps(result, indent=2))
        return
    table = require("rich.table", "cli").Table("", title, show_header=True)
    for key, value in _flat(result):
        shown = f"{value:.5g}" if isinstance(value, float) else str(value)
        table.add_row(_LABELS.get(key, key), "none" if value is None else shown)
    console().print(table)


def _flat(result: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    rows = []
    for key, value in result.items():
        name = f"{prefix}{key}".replace("_", " ")
        rows += _flat(value, f"{name}, ") if isinstance(value, dict) else [(name, value)]
    return rows


def console() -> Any:
    """Return a rich console on stdout. It prints names as they are, also such as `model[/b]` or `a:b:`."""
    return require("rich.console", "cli").Console(markup=False, emoji=False)
