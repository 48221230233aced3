# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""What several commands share: arguments, inputs, printing."""

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import Any

from ..extras import require


# Steps of refinement and their learning rate. Sparsemax starts further from the dense model and has further to go.
REFINEMENT = (32, 0.05)
SPARSEMAX_REFINEMENT = (64, 0.1)


# What is used where nothing is said. The parsers do not know it, so that a command can tell what was said.
DEFAULTS = {
    "batch_size": 1,
    "length": 512,
    "seed": 0,
    "objective": "output",
    "refine_on": "auto",
    "max_error": 0.05,
    "search_batches": 8,
    "rows": 64,
}
INPUT_ARGUMENTS = ("batches", "batch_size", "length", "seed")
CALIBRATION_ARGUMENTS = (
    *("objective", "target_support", "layerwise", "refine_steps", "refine_on", "learning_rate", "max_error", "budget"),
    *("search_batches", "rows", "resume_from"),
)


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
    group.add_argument("--batch_size", type=int, help=f"samples in a batch (default: {DEFAULTS['batch_size']})")
    group.add_argument("--length", type=int, help=f"tokens in a window of text (default: {DEFAULTS['length']})")
    group.add_argument("--seed", type=int, help=f"seed of everything random (default: {DEFAULTS['seed']})")


def add_calibration_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `calibrate`."""
    group = parser.add_argument_group("calibration")
    group.add_argument(
        "--objective",
        choices=("output", "kl", "support"),
        help=f"what each head minimises (default: {DEFAULTS['objective']})",
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
        help="what these steps minimise: the loss of a causal language model on the text, or the divergence from the "
        "dense model, which does not adapt to the text (default: the loss where there is one)",
    )
    group.add_argument(
        "--learning_rate",
        type=float,
        help=f"of these steps, on log beta (default: {REFINEMENT[1]}; {SPARSEMAX_REFINEMENT[1]} for sparsemax)",
    )
    group.add_argument(
        "--max_error",
        type=float,
        help="for --alpha search: relative error of a head, or with --objective kl the divergence of a row in nats "
        f"(default: {DEFAULTS['max_error']})",
    )
    group.add_argument(
        "--budget", type=float, help="the sparsest model within this share of the dense loss, such as 0.02"
    )
    group.add_argument(
        "--search_batches",
        type=int,
        help=f"batches to look at before refining (default: {DEFAULTS['search_batches']})",
    )
    group.add_argument("--rows", type=int, help=f"queries of a batch to look at (default: {DEFAULTS['rows']})")
    group.add_argument("--resume_from", help="file with the state of an interrupted calibration; written on the way")


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments for writing a checkpoint."""
    group = parser.add_argument_group("output")
    group.add_argument("--overwrite", action="store_true", help="replace an output directory that exists already")
    group.add_argument("--no_verify", action="store_true", help="do not load the result and compare its outputs")
    group.add_argument("--push_to_hub", metavar="OWNER/NAME", help="upload the result to the Hub, too")
    group.add_argument("--private", action="store_true", help="create the Hub repository private")


def check_push(arguments: argparse.Namespace) -> None:
    """Refuse a repository that cannot be pushed to, before any work."""
    from huggingface_hub.utils import HFValidationError, validate_repo_id

    if arguments.push_to_hub is None:
        if arguments.private:
            raise ValueError("--private says how to create a repository: it needs --push_to_hub OWNER/NAME.")
        return
    try:
        validate_repo_id(arguments.push_to_hub)
    except HFValidationError as error:
        raise ValueError(f"--push_to_hub {arguments.push_to_hub!r} is no name of a repository: {error}") from None


def given(arguments: argparse.Namespace, names: tuple[str, ...]) -> list[str]:
    """Which of these arguments somebody has given."""
    return [name for name in names if getattr(arguments, name) is not None and getattr(arguments, name) is not False]


def complete(arguments: argparse.Namespace) -> None:
    """Fill in what was not said."""
    for name, value in DEFAULTS.items():
        if getattr(arguments, name, value) is None:
            setattr(arguments, name, value)


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


def complete_calibration(arguments: argparse.Namespace, is_sparsemax: bool) -> None:
    """Fill in what was not said about calibration and its batches, and refuse what would have no effect."""
    searched = arguments.alpha == "search" and arguments.budget is None
    if arguments.max_error is not None and not searched:
        raise ValueError("--max_error is for --alpha search without --budget, which finds it itself.")
    steps, learning_rate = SPARSEMAX_REFINEMENT if is_sparsemax else REFINEMENT
    if arguments.refine_steps is None:  # refining would leave the support or the loss that was asked for
        arguments.refine_steps = 0 if arguments.objective == "support" or arguments.budget is not None else steps
    unused = given(arguments, ("refine_on", "learning_rate"))
    if unused and not arguments.refine_steps:
        raise ValueError(f"--{unused[0]} is for refining: it needs --refine_steps.")
    if arguments.learning_rate is None:
        arguments.learning_rate = learning_rate
    if arguments.batches is None:
        arguments.batches = max(arguments.refine_steps, REFINEMENT[0])
    complete(arguments)


def is_sparsemax(source: str, alpha: float | str | None) -> bool:
    """
    Whether what is calibrated is sparsemax, or near it.

    Args:
        source (`str`): The checkpoint.
        alpha (`float` or `str`, *optional*): What was asked for; `None` for what the checkpoint has.
    """
    if alpha is not None:
        return alpha != "search" and alpha > 1.75
    from transformers import AutoConfig

    from ..configuration import SparseHopfieldConfig

    settings = SparseHopfieldConfig.from_dict(getattr(AutoConfig.from_pretrained(source), "sparse_hopfield", None))
    alphas = [layer["alpha"] for layer in settings.overrides.values() if "alpha" in layer] or [settings.alpha]
    values = [value for each in alphas for value in (each if isinstance(each, list) else [each])]
    return sum(values) / len(values) > 1.75


def calibration_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The keyword arguments for `calibrate`."""
    options = {name: getattr(arguments, name) for name in (*CALIBRATION_ARGUMENTS, "seed", "alpha")}
    return {**options, "progress": show_progress(arguments)}


def make_batches(arguments: argparse.Namespace, model: Any, tokenizer: Any) -> list[dict[str, Any]]:
    """Batches as the arguments ask for them."""
    from ..sample_inputs import check_batch, random_batches, read_text, text_batches

    for name in ("batches", "batch_size", "length"):
        if getattr(arguments, name) < 1:
            raise ValueError(f"--{name} must be at least 1, got {getattr(arguments, name)}.")
    how = {name: getattr(arguments, name) for name in ("batch_size", "length", "seed")}
    if arguments.text is None:
        if arguments.batches == sys.maxsize:
            raise ValueError("--batches all needs --text: there is no end to random inputs.")
        return random_batches(model, arguments.batches, **how)
    if tokenizer is None:
        raise ValueError("the checkpoint has no tokenizer for --text; use --random.")
    batches = text_batches(model, tokenizer, read_text(arguments.text), count=arguments.batches, **how)
    check_batch(model, batches[0])
    return batches


def push(arguments: argparse.Namespace, folder: str) -> dict[str, str]:
    """Upload what was written, if that was asked for."""
    if arguments.push_to_hub is None:
        return {}
    from ..hub.push import push_folder

    return {"pushed": push_folder(folder, arguments.push_to_hub, arguments.private or None)}


def check_file(path: str | None) -> None:
    """Refuse a file that could not be written, before any work."""
    if path is not None and not Path(path).absolute().parent.is_dir():
        raise FileNotFoundError(f"{path!r} cannot be written: there is no directory {str(Path(path).parent)!r}.")


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
    from ..checkpoints.conversion import convert_checkpoint

    check_push(arguments)
    calibrated = arguments.text is not None or arguments.random
    if calibrated:
        alpha = (config or {}).get("alpha", arguments.alpha) if arguments.budget is None else "search"
        complete_calibration(arguments, is_sparsemax(arguments.source, alpha))
    result = convert_checkpoint(
        arguments.source,
        arguments.output,
        config,
        batches=(lambda model, tokenizer: make_batches(arguments, model, tokenizer)) if calibrated else None,
        calibration=calibration_options(arguments) if calibrated else None,
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
            **({"warnings": report.warnings} if report.warnings else {}),
        }
    return result
