# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""What several commands share: arguments, inputs, printing."""

import argparse
import json
import shlex
import sys
from typing import Any

from ..extras import require


def add_input_arguments(parser: argparse.ArgumentParser, purpose: str) -> None:
    """Arguments for a text, or random inputs, to run a model on."""
    group = parser.add_argument_group(f"what to {purpose} on")
    group.add_argument("--text", help="text file in UTF-8, may be .gz")
    group.add_argument(
        "--random", action="store_true", help="random inputs, where there is no text (such as for images)"
    )
    group.add_argument("--batches", type=int, default=8, help="batches (default: %(default)s)")
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
        "--refine_steps", type=int, default=0, help="gradient steps on beta and searched alpha; 32 make a difference"
    )
    group.add_argument(
        "--refine_on", choices=("auto", "loss", "dense"), default="auto", help="what these steps minimise"
    )
    group.add_argument("--max_error", type=float, default=0.05, help="relative error of a head, for --alpha search")
    group.add_argument(
        "--budget", type=float, help="the sparsest model within this share of the dense loss, such as 0.02"
    )
    group.add_argument(
        "--search_batches", type=int, default=8, help="batches to look at before refining (default: %(default)s)"
    )
    group.add_argument("--rows", type=int, default=128, help="queries of a batch to look at (default: %(default)s)")
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


def calibration_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The keyword arguments for `calibrate`."""
    names = "objective target_support layerwise refine_steps refine_on max_error budget rows search_batches seed resume_from".split()
    options = {name: getattr(arguments, name) for name in names}
    return {**options, "alpha": arguments.alpha, "progress": sys.stderr.isatty() and not arguments.json}


def make_batches(arguments: argparse.Namespace, model: Any, tokenizer: Any) -> list[dict[str, Any]]:
    """Batches as the arguments ask for them."""
    from ..integration.inputs import random_inputs, read_text, text_batches

    for name in ("batches", "batch_size", "length"):
        if getattr(arguments, name) < 1:
            raise ValueError(f"--{name} must be at least 1, got {getattr(arguments, name)}.")
    if arguments.text is None:
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


def command_line(program: str) -> str:
    """How the program was called, for model cards."""
    return shlex.join([program, *sys.argv[1:]])


def push(arguments: argparse.Namespace, folder: str) -> dict[str, str]:
    """Upload what was written, if that was asked for."""
    if arguments.push_to_hub is None:
        return {}
    from ..integration.hub import push_folder

    return {"pushed": push_folder(folder, arguments.push_to_hub, arguments.private)}


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


def summary(result: dict[str, Any]) -> dict[str, Any]:
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
