# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The entry point of `hf-sparse-hopfield`: parses the arguments, runs a command, turns errors into messages."""

import argparse
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, ModuleType

from ..version import __version__
from . import bench, calibrate, compare, completion, convert, demo, env, inspect
from .messages import one_look


COMMANDS: dict[str, ModuleType] = {
    "convert": convert,
    "calibrate": calibrate,
    "inspect": inspect,
    "compare": compare,
    "demo": demo,
    "bench": bench,
    "env": env,
    "completion": completion,
}
EXIT_CODES = """exit codes:
  0    the command did what it was asked for
  1    it failed: stderr says why, in a line that begins with "error:"
  2    the command line does not parse
  130  it was interrupted (Ctrl-C, or `kill`); what was half written is removed"""


def run_safely(run: Callable[[], None], debug: bool) -> int:
    """
    Run a command and turn its errors into messages and exit codes.

    Args:
        run (`Callable`): The command.
        debug (`bool`): Raise errors, with their traceback.

    Returns:
        `int`: 0 on success, 1 if the command failed, 130 if it was interrupted.
    """
    # `kill` cleans up as Ctrl-C does: half-written output is removed on the way out.
    in_main_thread = threading.current_thread() is threading.main_thread()
    previous = signal.signal(signal.SIGTERM, _interrupt) if in_main_thread else None
    try:
        with one_look():
            run()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of our output (`| head`) has closed it; without this, python would complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except SystemExit:
        raise
    except (
        BaseException
    ) as error:  # not every error is an Exception: a panic in the compiled code of tokenizers is not
        if debug:
            raise
        print(f"error: {_message(error)}", file=sys.stderr)
        return 1
    finally:
        if previous is not None:
            signal.signal(signal.SIGTERM, previous)
    return 0


def _message(error: BaseException) -> str:
    # The text of these errors is written for users; of other errors, the name of the class tells more.
    if isinstance(error, (ValueError, OSError, ImportError, RuntimeError)) and str(error):
        return str(error)
    return f"{type(error).__name__}: {error} (--debug shows where)"


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def add_global_options(parser: argparse.ArgumentParser, default: bool | str) -> None:
    """Add the options that every command accepts, before or after its name."""
    group = parser.add_argument_group("for every command")
    group.add_argument(
        "--json", action="store_true", default=default, help="print the result as JSON, and nothing else to stdout"
    )
    group.add_argument(
        "--quiet",
        action="store_true",
        default=default,
        help="show no progress and no notes: the result, warnings and errors",
    )
    group.add_argument("--debug", action="store_true", default=default, help="show the traceback of an error")


def add_parser_for(command: ModuleType, parser: argparse.ArgumentParser) -> None:
    """Fill a parser with the description and the arguments of a command."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description, parser.epilog = command.DESCRIPTION, command.EXAMPLES
    command.add_arguments(parser)
    parser.set_defaults(run=command.run)


def run_script(command: ModuleType, argv: list[str] | None = None) -> int:
    """
    Run one command as a script.

    Args:
        command (module): The command.
        argv (`list[str]`, *optional*, defaults to `sys.argv[1:]`): Arguments.

    Returns:
        `int`: As for [`main`].
    """
    parser = argparse.ArgumentParser()
    add_parser_for(command, parser)
    add_global_options(parser, default=False)
    arguments = parser.parse_args(argv)
    return run_safely(lambda: arguments.run(arguments), arguments.debug)


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="hf-sparse-hopfield",
        description="Sparse Hopfield retrieval for transformers.",
        epilog=f"{EXIT_CODES}\n\nhf-sparse-hopfield COMMAND --help explains a command. docs/command_line.md has more.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=__version__)
    add_global_options(parser, default=False)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        part = commands.add_parser(name, help=command.HELP)
        add_parser_for(command, part)
        # suppressed: a default here would overwrite an option given before the name of the command
        add_global_options(part, default=argparse.SUPPRESS)
    return parser


def main(argv: list[str] | None = None) -> int:
    """
    Run a command.

    Args:
        argv (`list[str]`, *optional*, defaults to `sys.argv[1:]`): Arguments.

    Returns:
        `int`: 0 on success, 1 if the command failed (the error goes to stderr; `--debug` shows its traceback), 2 for
        arguments that do not parse, 130 if it was interrupted.

    Example:

    ```python
    >>> from hf_sparse_hopfield.cli import main

    >>> main(["demo", "--steps", "0", "--output_dir", "nowhere"])
    1
    ```
    """
    try:
        arguments = make_parser().parse_args(argv)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return run_safely(lambda: arguments.run(arguments), arguments.debug)
