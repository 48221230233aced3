# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""What several commands share: arguments, inputs, printing."""

import argparse
import json
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..extras import require


# Steps of refinement and their learning rate. Sparsemax starts further from the dense model and has further to go.
REFINEMENT = (32, 0.05)
SPARSEMAX_REFINEMENT = (64, 0.1)


def add_input_arguments(parser: argparse.ArgumentParser, purpose: str, batches: int | None = 8) -> None:
    """Arguments for a text, or random inputs, to run a model on."""
    group = parser.add_argument_group(f"what to {purpose} on")
    kind = group.add_mutually_exclusive_group()
    kind.add_argument("--text", help="text file in UTF-8, may be .gz")
    kind.add_argument(
        "--random", action="store_true", help="random inputs, where there is no text (such as for images)"
    )
    usual = batches or f"one for every step of refinement, at least {REFINEMENT[0]}"
    group.add_argument(
        "--batches", type=parse_batches, default=batches, help=f"batches, or 'all' of the text (default: {usual})"
    )
    group.add_argument("--batch_size", type=int, default=1, help="samples in a batch (default: %(default)s)")
    group.add_argument("--length", type=int, default=512, help="tokens in a window of text (default: %(default)s)")
    group.add_argument("--seed", type=int, default=0, help="seed of everything random (default: %(default)s)")


def add_calibration_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `calibrate`."""
    group = parser.add_argument_group("calibration")
    group.add_argument(
        "--objective", choices=("output", "kl", "support"), default="output", help="what each head minimises"
    )
    group.add_argument("--target_support", type=float, help="share of the visible keys, for --objective support")
    group.add_argument("--layerwise", action="store_true", help="later layers see the sparse earlier ones")
    group.add_argument(
        "--refine_steps",
        type=int,
        help="then gradient steps on beta and searched alpha alone, a batch each; no weight changes (default: "
        f"{REFINEMENT[0]}; {SPARSEMAX_REFINEMENT[0]} for sparsemax; 0, which leaves every head with what is best for it alone, "
        "for --budget and --objective support)",
    )
    group.add_argument(
        "--refine_on",
        choices=("auto", "loss", "dense"),
        default="auto",
        help="what these steps minimise: the loss of a causal language model on the text, or the divergence from the "
        "dense model, which does not adapt to the text (default: the loss where there is one)",
    )
    group.add_argument(
        "--learning_rate",
        type=float,
        help=f"of these steps, on log beta (default: {REFINEMENT[1]}; {SPARSEMAX_REFINEMENT[1]} for sparsemax)",
    )
    group.add_argument("--max_error", type=float, default=0.05, help="relative error of a head, for --alpha search")
    group.add_argument(
        "--budget", type=float, help="the sparsest model within this share of the dense loss, such as 0.02"
    )
    group.add_argument(
        "--search_batches", type=int, default=8, help="batches to look at before refining (default: %(default)s)"
    )
    group.add_argument("--rows", type=int, default=64, help="queries of a batch to look at (default: %(default)s)")
    group.add_argument("--resume_from", help="file with the state of an interrupted calibration; written on the way")


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments for writing a checkpoint."""
    group = parser.add_argument_group("output")
    group.add_argument("--overwrite", action="store_true", help="replace an output directory that exists already")
    group.add_argument("--no_verify", action="store_true", help="do not load the result and compare its outputs")
    group.add_argument("--push_to_hub", metavar="OWNER/NAME", help="upload the result to the Hub, too")
    group.add_argument("--private", action="store_true", help="create the Hub repository private")
    add_json_argument(parser)


def add_json_argument(parser: argparse.ArgumentParser) -> None:
    """`--json`."""
    parser.add_argument("--json", action="store_true", help="print the result as JSON, and nothing else to stdout")


def parse_alpha(text: str) -> float | str:
    """The value of `--alpha`: a number, or `search`."""
    if text == "search":
        return text
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number in [1, 2] or 'search', got {text!r}") from None


def parse_batches(text: str) -> int:
    """The value of `--batches`: a number, or `all`."""
    if text == "all":
        return sys.maxsize
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number or 'all', got {text!r}") from None


def show_progress(arguments: argparse.Namespace) -> bool:
    """Whether a progress bar is of use: somebody looks on, and no machine reads."""
    return sys.stderr.isatty() and not arguments.json


def complete_refinement(arguments: argparse.Namespace, is_sparsemax: bool) -> None:
    """Fill in what was not said about refinement and its batches."""
    steps, learning_rate = SPARSEMAX_REFINEMENT if is_sparsemax else REFINEMENT
    if arguments.refine_steps is None:  # refining would leave the support or the loss that was asked for
        arguments.refine_steps = 0 if arguments.objective == "support" or arguments.budget is not None else steps
    if arguments.learning_rate is None:
        arguments.learning_rate = learning_rate
    if arguments.batches is None:
        arguments.batches = max(arguments.refine_steps, REFINEMENT[0])


def calibration_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The keyword arguments for `calibrate`."""
    names = "objective target_support layerwise refine_steps refine_on learning_rate max_error budget rows search_batches seed resume_from".split()
    options = {name: getattr(arguments, name) for name in names}
    return {**options, "alpha": arguments.alpha, "progress": show_progress(arguments)}


def make_batches(arguments: argparse.Namespace, model: Any, tokenizer: Any) -> list[dict[str, Any]]:
    """Batches as the arguments ask for them."""
    from ..integration.inputs import random_inputs, read_text, text_batches

    for name in ("batches", "batch_size", "length"):
        if getattr(arguments, name) < 1:
            raise ValueError(f"--{name} must be at least 1, got {getattr(arguments, name)}.")
    if arguments.text is None:
        if arguments.batches == sys.maxsize:
            raise ValueError("--batches all needs --text: there is no end to random inputs.")
        return [
            random_inputs(
                model, batch_size=arguments.batch_size, length=arguments.length, seed=arguments.seed + number
            )
            for number in range(arguments.batches)
        ]
    if tokenizer is None:
        raise ValueError("the checkpoint has no tokenizer for --text; use --random.")
    return text_batches(
        model,
        tokenizer,
        read_text(arguments.text),
        length=arguments.length,
        count=arguments.batches,
        batch_size=arguments.batch_size,
        seed=arguments.seed,
    )


def push(arguments: argparse.Namespace, folder: str) -> dict[str, str]:
    """Upload what was written, if that was asked for."""
    if arguments.push_to_hub is None:
        return {}
    from ..integration.hub import push_folder

    return {"pushed": push_folder(folder, arguments.push_to_hub, arguments.private)}


def check_file(path: str | None) -> None:
    """Refuse a file that could not be written, before any work."""
    if path is not None and not Path(path).absolute().parent.is_dir():
        raise FileNotFoundError(f"{path!r} cannot be written: there is no directory {str(Path(path).parent)!r}.")


@contextmanager
def new_file(path: str) -> Iterator[Path]:
    """A file that appears under its name only when the context ends well; yields where to write."""
    target = Path(path)
    beside = target.with_name(f".partial-{target.name}")
    try:
        yield beside
        os.replace(beside, target)
    finally:
        beside.unlink(missing_ok=True)


def show(arguments: argparse.Namespace, result: dict[str, Any], title: str) -> None:
    """Print a result, as a table or as JSON."""
    if arguments.json:
        print(json.dumps(result, indent=2))
        return
    table = require("rich.table", "cli").Table("", title, show_header=True)
    for key, value in _flat(result):
        table.add_row(key, f"{value:.5g}" if isinstance(value, float) else str(value))
    console().print(table)


def _flat(result: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    rows = []
    for key, value in result.items():
        name = f"{prefix}{key}".replace("_", " ")
        rows += _flat(value, f"{name}, ") if isinstance(value, dict) else [(name, value)]
    return rows


def console() -> Any:
    """A rich console on stdout."""
    return require("rich.console", "cli").Console()


def write_sparse(arguments: argparse.Namespace, config: dict[str, Any] | None, **load_options: Any) -> None:
    """
    Convert or calibrate a checkpoint as the arguments say, and show the result.

    Args:
        arguments (`argparse.Namespace`): With those of all groups above.
        config (`dict`, *optional*): The settings to convert with.
        **load_options: For `from_pretrained`.
    """
    from ..integration.checkpoints import convert_checkpoint

    calibrated = arguments.text is not None or arguments.random
    complete_refinement(arguments, arguments.alpha != "search" and (config or {}).get("alpha", 1.0) > 1.75)
    result = convert_checkpoint(
        arguments.source,
        arguments.output,
        config,
        batches=(lambda model, tokenizer: make_batches(arguments, model, tokenizer)) if calibrated else None,
        calibration=calibration_options(arguments),
        overwrite=arguments.overwrite,
        verify=not arguments.no_verify,
        command=shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        **load_options,
    )
    show(
        arguments,
        {"output": arguments.output, **_summary(result), **push(arguments, arguments.output)},
        arguments.source,
    )


def _summary(result: dict[str, Any]) -> dict[str, Any]:
    """The result of converting a checkpoint, with the calibration report in few numbers."""
    result = dict(result)
    report = result.pop("calibration", None)
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
        }
    return result
