# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Arguments that several commands share, and the inputs they describe."""

import argparse
import dataclasses
import itertools
import logging
import sys
import typing
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..calibration.recipe import REFINEMENT, CalibrationOptions, DistillationOptions, InputOptions
from ..files import check_writable
from ..processes import is_main_process


logger = logging.getLogger(__name__)


def option_names(options: type) -> tuple[str, ...]:
    """The fields of a dataclass that are arguments: those with a help text."""
    return tuple(field.name for field in dataclasses.fields(options) if "help" in field.metadata)


SELF = "self"  # a text that the model writes itself
_SELF_IN_WORDS = "text that the dense model wrote itself"
_DATASET = "dataset:"  # begins the name of a dataset
_CHARACTERS = 10  # at most, of a token on average

TERMS = """terms:
  query, key    attention reads for each token (the query) from the tokens that it sees (the keys)
  alpha         how sparse: 1 is softmax, where every key gets weight; 1.5 is entmax15; 2 is sparsemax, the sparsest
  beta          sharpness: the scores are multiplied by it, so a larger beta gives fewer keys weight
  length_power  how beta grows with the number of keys that a query sees: beta * (keys / 256) ** length_power
  support       the keys that get weight; all others have a weight of exactly zero. As a share: of the visible keys
  entropy       how evenly the weights are spread, in nats: exp(entropy) keys of equal weight have the same
  dead head     its output does not depend on the query: it reads nearly always the first key, a learned sink, or all keys alike
  divergence    how far outputs are from the dense model's: of predictions the KL divergence in nats, of hidden states the
                squared error relative to their energy; 0 if they are equal
  perplexity    exp(loss): among how many equally likely tokens a language model chooses; lower is better
  calibration   chooses beta (and alpha, length_power) of every head; no weight of the model changes
  distillation  trains the weights of the attention on the outputs of the dense model"""

INPUT_ARGUMENTS = ("batches", "length", "split", "text_column", *option_names(InputOptions))
CALIBRATION_ARGUMENTS = (*option_names(CalibrationOptions), "no_lengths", "resume_from")


def add_options(group: argparse._ArgumentGroup, options: type) -> None:
    """
    Declare an argument for each field of a dataclass that has a help text.

    The default of every argument is `None`, so that a command can tell what the user gave; the dataclass has the defaults.
    """
    types = typing.get_type_hints(options)
    for field in dataclasses.fields(options):
        if "help" not in field.metadata:
            continue
        kind = (typing.get_args(types[field.name]) or (types[field.name],))[0]
        help_text = field.metadata["help"]
        if kind is bool:
            group.add_argument(f"--{field.name}", action="store_true", default=None, help=help_text)
            continue
        if field.default is not None:
            help_text += f" (default: {field.default})"
        group.add_argument(f"--{field.name}", type=kind, choices=field.metadata.get("choices"), help=help_text)


def add_input_arguments(parser: argparse.ArgumentParser, purpose: str, batches: int | None = 8) -> None:
    """
    Declare the arguments for a text, or random inputs, to run a model on.

    Args:
        parser (`argparse.ArgumentParser`): The parser of a command.
        purpose (`str`): What the inputs are for, for the help.
        batches (`int`, *optional*, defaults to 8): Default of `--batches`; `None`: as many as calibration needs.
    """
    group = parser.add_argument_group(f"what to {purpose} on")
    kind = group.add_mutually_exclusive_group()
    kind.add_argument(
        "--text",
        nargs="+",
        help="text files in UTF-8, may be .gz, in equal shares; 'self': text that the dense model writes itself; 'dataset:NAME': a "
        "dataset (Hub id, folder, or .jsonl, .csv or .parquet file)",
    )
    group.add_argument("--split", help="split of a dataset (default: train)")
    group.add_argument("--text_column", help="column of a dataset that has the text (default: text)")
    kind.add_argument(
        "--random", action="store_true", help="random inputs, for models that take no text (such as images)"
    )
    usual = batches or f"one for each step of refinement, at least {REFINEMENT.steps}"
    group.add_argument(
        "--batches",
        type=parse_batches,
        default=batches,
        help=f"number of batches, or 'all' of the text (default: {usual})",
    )
    group.add_argument(
        "--length",
        type=int,
        nargs="+",
        help="tokens in a window of text; several lengths get equal shares of the batches, and a batch of long windows has fewer "
        f"of them (default: {InputOptions.length})",
    )
    add_options(group, InputOptions)


def add_calibration_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `calibrate`."""
    group = parser.add_argument_group("calibration")
    add_options(group, CalibrationOptions)
    group.add_argument(
        "--no_lengths",
        action="store_true",
        help="one beta for rows of all lengths; by default it depends on the number of keys that a query sees (length_power)",
    )
    group.add_argument(
        "--resume_from",
        help="file that keeps the state of the calibration; if it exists, the calibration resumes from it",
    )


def add_distillation_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `distill`."""
    default = DistillationOptions()
    group = parser.add_argument_group("distillation")
    group.add_argument(
        "--distill",
        action="store_true",
        help="after calibration, train the attention until it does what the dense model did",
    )
    group.add_argument(
        "--distill_steps", type=int, help=f"steps on the outputs of the dense model (default: {default.steps})"
    )
    group.add_argument(
        "--layer_steps",
        type=int,
        help=f"steps before them on the outputs of each attention module (default: {default.layer_steps})",
    )
    group.add_argument(
        "--rank",
        type=int,
        help="train low-rank updates of the attention, merged in the end, instead of all its weights",
    )
    group.add_argument("--max_support", type=float, help="largest mean share of the visible keys that get weight")
    group.add_argument(
        "--distill_budget", type=float, help="find the sparsest model within this divergence from the dense one"
    )
    group.add_argument(
        "--checkpoints",
        help="folder for checkpoints of the distillation; if it holds one, the distillation resumes from it",
    )


DISTILLATION_ARGUMENTS = (
    "distill_steps",
    "layer_steps",
    "rank",
    "max_support",
    "distill_budget",
    "checkpoints",
)


def distillation_options(arguments: argparse.Namespace) -> DistillationOptions | None:
    """Return the options for `distill`, completed by the recipe; `None` if it is not asked for."""
    values = given(arguments, DISTILLATION_ARGUMENTS)
    if not arguments.distill:
        if values:
            raise ValueError(f"--{next(iter(values))} is for --distill.")
        return None
    names = {"distill_steps": "steps", "distill_budget": "budget"}
    options = {names.get(name, name): value for name, value in values.items() if name != "checkpoints"}
    return DistillationOptions(**options, seed=input_options(arguments).seed)


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments for writing a checkpoint."""
    group = parser.add_argument_group("output")
    group.add_argument(
        "--overwrite", action="store_true", help="replace an output directory that holds only what this program wrote"
    )
    group.add_argument("--no_verify", action="store_true", help="skip loading the result and comparing its outputs")
    group.add_argument("--push_to_hub", metavar="OWNER/NAME", help="also upload the result to the Hub")
    group.add_argument("--private", action="store_true", help="create the Hub repository as private")


def check_push(arguments: argparse.Namespace) -> None:
    """Refuse a repository that cannot be pushed to, before any work."""
    from huggingface_hub.utils import HFValidationError, validate_repo_id

    if arguments.push_to_hub is None:
        if arguments.private:
            raise ValueError("--private is for the repository of --push_to_hub OWNER/NAME, which is missing.")
        return
    try:
        validate_repo_id(arguments.push_to_hub)
    except HFValidationError as error:
        raise ValueError(f"--push_to_hub {arguments.push_to_hub!r} is not a repository name: {error}") from None


def given(arguments: argparse.Namespace, names: Iterable[str]) -> dict[str, Any]:
    """Return those of some arguments that the user gave."""
    values = {name: getattr(arguments, name) for name in names}
    return {name: value for name, value in values.items() if value is not None and value is not False}


def input_options(arguments: argparse.Namespace) -> InputOptions:
    """Return the options of the inputs, completed by their defaults; of several lengths the first."""
    options = InputOptions(**given(arguments, option_names(InputOptions)))
    return dataclasses.replace(options, length=arguments.length[0]) if arguments.length else options


def calibration_options(arguments: argparse.Namespace) -> CalibrationOptions:
    """Return the options for `calibrate`, completed by the recipe. Arguments that would have no effect are refused."""
    searched = arguments.alpha == "search" and arguments.budget is None
    if arguments.max_error is not None and not searched:
        raise ValueError("--max_error is for --alpha search without --budget, which finds it itself.")
    values = given(arguments, ("alpha", *option_names(CalibrationOptions)))
    unused = given(arguments, ("refine_on", "learning_rate", *(() if arguments.distill else ("bf16",))))
    if unused and not CalibrationOptions(**{name: values[name] for name in values if name not in unused}).refines:
        raise ValueError(f"--{next(iter(unused))} is for refining: it needs --refine_steps.")
    return CalibrationOptions(**values, lengths=not arguments.no_lengths, seed=input_options(arguments).seed)


def parse_alpha(text: str) -> float | str:
    """Read the value of `--alpha`: a number, or `search`."""
    if text == "search":
        return text
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number in [1, 2] or 'search', got {text!r}") from None


def parse_batches(text: str) -> int:
    """Read the value of `--batches`: a number, or `all`."""
    if text == "all":
        return sys.maxsize
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number or 'all', got {text!r}") from None


def show_progress(arguments: argparse.Namespace) -> bool:
    """Return whether to show progress, which goes to stderr. Of several processes, the main one shows it."""
    return not arguments.quiet and is_main_process()


def make_batches(
    arguments: argparse.Namespace, model: Any, tokenizer: Any, count: int, least: int = 1
) -> list[dict[str, Any]]:
    """
    Make the batches that the arguments ask for.

    Args:
        arguments (`argparse.Namespace`): With those of [`add_input_arguments`].
        model ([`~transformers.PreTrainedModel`]): The model that takes them.
        tokenizer (*optional*): Its tokenizer or processor.
        count (`int`): Number of batches; `sys.maxsize` for all of the text.
        least (`int`, *optional*, defaults to 1): Batches that a text must give, at least.
    """
    from ..sample_inputs import check_batch, random_batches

    options = input_options(arguments)
    lengths = arguments.length or [options.length]
    for name, value in (("batches", count), ("batch_size", options.batch_size), ("length", min(lengths))):
        if value < 1:
            raise ValueError(f"--{name} must be at least 1, got {value}.")
    if arguments.text is None:
        if count == sys.maxsize:
            raise ValueError("--batches all needs --text: random inputs have no end.")
        return random_batches(model, count, **dataclasses.asdict(options))
    if tokenizer is None and arguments.text != [SELF]:
        raise ValueError("the checkpoint has no tokenizer for --text; use --random.")
    sizes = [max(1, options.batch_size * lengths[0] // length) for length in lengths]
    kinds = [
        dataclasses.replace(options, length=length, batch_size=size, seed=options.seed + number)
        for number, (length, size) in enumerate(zip(lengths, sizes, strict=True))
    ]
    share = count if count == sys.maxsize else -(-count // (len(arguments.text) * len(kinds)))
    each = [
        _batches_of(arguments, name, kind, (number, len(kinds)), model, tokenizer, share, least)
        for number, kind in enumerate(kinds)
        for name in arguments.text
    ]
    mixed = [batch for together in itertools.zip_longest(*each) for batch in together if batch is not None]
    check_batch(model, mixed[0])
    if arguments.batches not in (None, sys.maxsize) and len(mixed) < count:
        logger.warning(
            "--batches %d and what is held out need %d batches, and the text gives %d.",
            arguments.batches,
            count,
            len(mixed),
        )
    return mixed[:count]


def _batches_of(
    arguments: argparse.Namespace,
    name: str,
    options: InputOptions,
    part: tuple[int, int],
    model: Any,
    tokenizer: Any,
    count: int,
    least: int,
) -> list[dict[str, Any]]:
    """The batches of one text, by its name in `--text`. A part (this one, of so many) belongs to one length alone."""
    from ..observation import Observer, observed
    from ..sample_inputs import as_batches, self_written, text_batches

    if name != SELF:
        tokens = count * options.batch_size * options.length * part[1]
        text = _read(arguments, name, tokens * _CHARACTERS)
        first, end = (len(text) * number // part[1] for number in (part[0], part[0] + 1))
        # Parts do not overlap: what is held out at one length must not be seen at another.
        return text_batches(model, tokenizer, text[first:end], count=count, least=least, **dataclasses.asdict(options))
    if count == sys.maxsize:
        raise ValueError("--batches all has no end with --text self: give a number.")
    with observed(model, Observer()):  # the dense model writes
        windows = self_written(
            model,
            tokenizer,
            windows=count * options.batch_size,
            length=options.length,
            seed=options.seed,
            progress=show_progress(arguments),
        )
    return as_batches(model, windows, options.batch_size)


def _read(arguments: argparse.Namespace, name: str, characters: int) -> str:
    from ..sample_inputs import dataset_text, read_text

    if not name.startswith(_DATASET):
        return read_text(name)
    options = {"split": arguments.split, "column": arguments.text_column}
    options = {option: value for option, value in options.items() if value is not None}
    return dataset_text(name.removeprefix(_DATASET), **options, characters=characters)


def check_file(path: str | None) -> None:
    """Refuse a file that cannot be written, before any work."""
    if path is None:
        return
    if Path(path).is_dir():
        raise IsADirectoryError(f"{path!r} cannot be written: it is a directory.")
    if not Path(path).absolute().parent.is_dir():
        raise FileNotFoundError(f"{path!r} cannot be written: there is no directory {str(Path(path).parent)!r}.")
    check_writable(path)


def check_text(arguments: argparse.Namespace) -> None:
    """Refuse a `--text` that does not exist, before any work."""
    names = arguments.text or ()
    twice = [name for number, name in enumerate(names) if name in names[:number]]
    if twice:
        raise ValueError(f"--text names {twice[0]!r} twice: what is held out of one would be seen in the other.")
    for name in names:
        if name != SELF and not name.startswith(_DATASET) and not Path(name).is_file():
            raise FileNotFoundError(
                f"--text {name!r} is not a file (a dataset is 'dataset:NAME', text that the model writes is 'self')."
            )
    unused = given(arguments, ("split", "text_column"))
    if unused and not any(name.startswith(_DATASET) for name in names):
        raise ValueError(f"--{next(iter(unused))} is for --text dataset:NAME.")


def text_names(arguments: argparse.Namespace) -> str:
    """What `--text` names, in words."""
    return " and ".join(
        _SELF_IN_WORDS
        if name == SELF
        else name.removeprefix(_DATASET)
        if name.startswith(_DATASET)
        else Path(name).name
        for name in arguments.text
    )
