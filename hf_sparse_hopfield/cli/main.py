# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The command line, `hf-sparse-hopfield`. Every command imports what it needs only when it runs."""

import argparse
import os
import signal
import sys
from collections.abc import Callable
from types import ModuleType

from ..version import __version__
from . import bench, calibrate, convert, demo, inspect


COMMANDS: dict[str, ModuleType] = {
    "convert": convert,
    "calibrate": calibrate,
    "inspect": inspect,
    "demo": demo,
    "bench": bench,
}


def run_safely(run: Callable[[], None], debug: bool) -> int:
    """
    Run a command and turn its errors into messages and exit codes.

    Args:
        run (`Callable`): The command.
        debug (`bool`): Let errors through, with their traceback.

    Returns:
        `int`: 0 if all went well, 1 if the command failed, 130 if it was interrupted.
    """
    # `kill` is to clean up like Ctrl-C does: half-written output is removed on the way out.
    previous = signal.signal(signal.SIGTERM, _interrupt) if _in_main_thread() else None
    try:
        run()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # whoever read our output (`| head`) has left; python would complain once more while it flushes at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except SystemExit:
        raise
    except BaseException as error:  # also what is no Exception, as a panic in the compiled code of tokenizers
        if debug:
            raise
        print(f"error: {_message(error)}", file=sys.stderr)
        return 1
    finally:
        if previous is not None:
            signal.signal(signal.SIGTERM, previous)
    return 0


def _message(error: BaseException) -> str:
    # Errors with arguments, files, disks and models speak for themselves; of others the name says more than the text.
    if isinstance(error, (ValueError, OSError, ImportError, RuntimeError)) and str(error):
        return str(error)
    return f"{type(error).__name__}: {error} (--debug shows where)"


def _interrupt(number, frame) -> None:
    raise KeyboardInterrupt


def _in_main_thread() -> bool:
    import threading

    return threading.current_thread() is threading.main_thread()


def add_global_options(parser: argparse.ArgumentParser, default: bool | str) -> None:
    """What every command understands, before or after its name."""
    parser.add_argument("--debug", action="store_true", default=default, help="show the traceback of an error")
    parser.add_argument(
        "--json", action="store_true", default=default, help="print the result as JSON, and nothing else to stdout"
    )


def add_parser_for(command: ModuleType, parser: argparse.ArgumentParser) -> None:
    """Fill a parser with what a command has to say about itself."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description, parser.epilog = command.DESCRIPTION, command.EXAMPLES
    command.add_arguments(parser)
    parser.set_defaults(run=command.run)


def run_script(command: ModuleType, first: list[str] | None = None, argv: list[str] | None = None) -> int:
    """
    Run one command as a script of its own.

    Args:
        command (module): The command.
        first (`list[str]`, *optional*): Arguments that the script fixes.
        argv (`list[str]`, *optional*, defaults to `sys.argv[1:]`): Arguments.
    """
    parser = argparse.ArgumentParser()
    add_parser_for(command, parser)
    add_global_options(parser, default=False)
    arguments = parser.parse_args([*(first or []), *(sys.argv[1:] if argv is None else argv)])
    return run_safely(lambda: arguments.run(arguments), arguments.debug)


def main(argv: list[str] | None = None) -> int:
    """
    Run a command.

    Args:
        argv (`list[str]`, *optional*, defaults to `sys.argv[1:]`): Arguments.

    Returns:
        `int`: 0 if all went well, 1 if the command failed (the error goes to stderr, its traceback with `--debug`), 2 for
        arguments that do not parse, 130 if it was interrupted.

    Example:

    ```python
    >>> from hf_sparse_hopfield.cli import main

    >>> main(["demo", "--steps", "0", "--output_dir", "nowhere"])
    1
    ```
    """
    parser = argparse.ArgumentParser(
        prog="hf-sparse-hopfield", description="Sparse Hopfield retrieval for transformers."
    )
    parser.add_argument("--version", action="version", version=__version__)
    add_global_options(parser, default=False)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        part = commands.add_parser(name, help=command.HELP)
        add_parser_for(command, part)
        # suppressed, so that not giving one here does not undo one before the name of the command
        add_global_options(part, default=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    return run_safely(lambda: arguments.run(arguments), arguments.debug)
