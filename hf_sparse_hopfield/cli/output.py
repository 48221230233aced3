# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""What commands do with their result: write the checkpoint, upload it, print a summary."""

import argparse
import functools
import json
import logging
import math
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..calibration.recipe import usual_batches
from ..processes import is_main_process
from ..progress import duration
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


logger = logging.getLogger(__name__)

_NOT_CALIBRATED = (
    "The result is not calibrated. With alpha {alpha:g} and the scaling of the dense model, a pretrained model does "
    "poorly: calibrate it (convert again with --text FILE, or --random for models that take no text) or fine-tune it."
)


def write_checkpoint(arguments: argparse.Namespace, convert: Callable[..., dict[str, Any]], **options: Any) -> None:
    """
    Convert a checkpoint, upload it if that was asked for, and show the result.

    Args:
        arguments (`argparse.Namespace`): With `source`, `output` and those of [`add_output_arguments`].
        convert (`Callable`): A conversion of [`~hf_sparse_hopfield.checkpoints`].
        **options: More arguments for it.
    """
    if not is_main_process():
        return  # there is nothing to share out
    check_push(arguments)
    result = convert(
        arguments.source,
        arguments.output,
        overwrite=arguments.overwrite,
        verify=not arguments.no_verify,
        **options,
    )
    show(arguments, {"output": arguments.output, **result, **push(arguments, arguments.output)})


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
            progress=show_progress(arguments),
            command=shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
            **load_options,
        )
    if not calibration and config is not None and config["alpha"] > 1:
        logger.warning(_NOT_CALIBRATED.format(alpha=config["alpha"]))
    if is_main_process():
        show(arguments, {"output": arguments.output, **_summary(result), **push(arguments, arguments.output)})


def _training(arguments: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `distill` for where and how it trains."""
    import torch
    from transformers import TrainingArguments

    from ..training import last_whole_checkpoint

    if not given(arguments, ("bf16", "checkpoints")):
        return {}
    folder = arguments.checkpoints
    keep: dict[str, Any] = {"save_strategy": "no"} if folder is None else {"save_steps": 50, "save_total_limit": 2}
    return {
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
    """Return the result of a conversion as JSON holds it, with a summary in place of the reports."""
    report, distilled = result.get("calibration"), result.get("distillation")
    summary = {name: value for name, value in result.items() if name != "distillation"} | {"calibration": None}
    comparison = result.get("comparison", {})
    if "dense_loss" in comparison:
        losses = {"dense": comparison["dense_loss"], "sparse": comparison["sparse_loss"]}
        summary["perplexity"] = {kind: math.exp(loss) for kind, loss in losses.items()}
    if distilled is not None:
        summary["distillation"] = {
            "steps": distilled.steps,
            "tokens": distilled.tokens,
            "unit": distilled.unit,
            "divergence_before": distilled.held_out["before"]["divergence"],
            "divergence": distilled.held_out["after"]["divergence"],
            "mean_support": distilled.mean_support,
            "seconds": distilled.seconds,
        }
    if report is not None:
        summary["calibration"] = {
            "batches": report.batches,
            "mean_alpha": report.mean("alpha"),
            "mean_beta": report.mean("beta"),
            "mean_error": report.mean("error"),
            "mean_support": report.mean("support"),
            "refined": len(report.refined),
            "longest": report.longest,
            "seconds": report.seconds,
            **({"budget": report.budget} if report.budget else {}),
            **({"warnings": report.warnings} if report.warnings else {}),
        }
    return summary


def show(arguments: argparse.Namespace, result: dict[str, Any]) -> None:
    """
    Print the result of a conversion in words, or as JSON.

    Args:
        arguments (`argparse.Namespace`): Those of the command.
        result (`dict`): What the conversion returns, with `output`.
    """
    if arguments.json:
        print(json.dumps(result, indent=2))
        return
    out, layers = console(), result.get("layers")
    say = functools.partial(out.print, soft_wrap=True)
    say(f"{arguments.source} → {result['output']}" + (f": {result['model']}" if "model" in result else ""))
    if isinstance(layers, int):
        say(f"{layers} attention modules retrieve sparsely.")
    elif layers:
        say(f"Layers: {', '.join(f'{name} ({kind})' for name, kind in layers.items())}.")
    if "comparison" in result:
        from ..hub.cards import UNLIKE_USE

        on = "random inputs" if arguments.random else text_names(arguments)
        say()
        count = result["comparison"]["held_out_batches"]
        out.print(_comparison(result, f"held out: {count} {'batch' if count == 1 else 'batches'} of {on}"))
        say(UNLIKE_USE)
        say()
    for line in _sentences(result):
        say(line)


def _comparison(result: dict[str, Any], title: str) -> Any:
    """The dense and the sparse model side by side."""
    compared, table = result["comparison"], make_table(title, "dense", "sparse", "")
    if "perplexity" in result:
        dense, sparse = result["perplexity"]["dense"], result["perplexity"]["sparse"]
        table.add_row("perplexity (lower is better)", f"{dense:.2f}", f"{sparse:.2f}", f"{sparse / dense - 1:+.1%}")
    table.add_row("keys used by a query, mean of all heads", "100%", f"{compared['mean_support']:.1%}", "")
    table.add_row("divergence from the dense model (0: equal)", "0", f"{compared['divergence']:.3g}", "")
    table.add_row("similarity of the outputs (1: equal)", "1", f"{compared['cosine']:.4f}", "")
    return table


def _sentences(result: dict[str, Any]) -> Iterator[str]:
    """What else there is to say about a conversion."""
    calibrated, distilled = result.get("calibration"), result.get("distillation")
    if calibrated is None and "calibration" in result:
        yield "Not calibrated."
    if calibrated is not None:
        steps = f", then {calibrated['refined']} steps of refinement" if calibrated["refined"] else ""
        yield (
            f"Calibrated in {duration(calibrated['seconds'])}: {calibrated['batches']} batches searched{steps}. "
            f"Mean alpha {calibrated['mean_alpha']:.3g}, mean beta {calibrated['mean_beta']:.3g}. The settings hold for rows of up to about "
            f"{calibrated['longest']} keys, the longest that were seen."
        )
        budget = calibrated.get("budget", {})
        if budget:
            kept = ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in budget.items())
            yield f"Budget, on the batches searched: {kept}."
    if distilled is not None:
        yield (
            f"Distilled in {duration(distilled['seconds'])}: {distilled['steps']} steps on {distilled['tokens']} {distilled['unit']}. Divergence "
            f"{distilled['divergence_before']:.3g} before, {distilled['divergence']:.3g} after, on the held-out batches."
        )
    if result.get("difference") not in (None, {}):
        yield _verified(result["difference"])
    if "pushed" in result:
        yield f"Pushed: {result['pushed']}"


def _verified(difference: float | dict[str, float]) -> str:
    compared = "the formula" if isinstance(difference, dict) else "the model in memory"
    largest = max(difference.values()) if isinstance(difference, dict) else difference
    outcome = "equal outputs" if largest == 0 else f"outputs differ by {largest:.2g} at most"
    return f"Written, loaded again and compared with {compared}: {outcome}."


def push(arguments: argparse.Namespace, folder: str) -> dict[str, str]:
    """Upload the result if `--push_to_hub` asks for it."""
    if arguments.push_to_hub is None:
        return {}
    from ..hub.push import push_folder

    return {"pushed": push_folder(folder, arguments.push_to_hub, arguments.private or None)}


def make_table(title: str, *columns: str) -> Any:
    """
    Return a table in the look of all commands: no lines, names to the left, figures to the right.

    Args:
        title (`str`): Title of the first column.
        *columns (`str`): Titles of the others.
    """
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(title, overflow="fold")
    for column in columns:
        table.add_column(column, justify="right" if column else "left", overflow="fold")
    return table


def console() -> Any:
    """Return a rich console on stdout. It prints names as they are, also such as `model[/b]` or `a:b:`."""
    from rich.console import Console

    return Console(markup=False, emoji=False, highlight=False)
