# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The command line, `hf-sparse-hopfield`. Every command imports what it needs only when it runs."""

import argparse
import os
import pickle
import signal
import sys
import zlib
from collections.abc import Callable
from types import ModuleType

from safetensors import SafetensorError

from .commands import calibrate, convert, demo, inspect
from .version import __version__


# What goes wrong with arguments, files, disks and models; the last four are what damaged files raise.
_ERRORS = (
    ValueError,
    TypeError,
    KeyError,
    OSError,
    ImportError,
    RuntimeError,
    EOFError,
    pickle.UnpicklingError,
    SafetensorError,
    zlib.error,
)

COMMANDS: dict[str, ModuleType] = {"convert": convert, "calibrate": calibrate, "inspect": inspect, "demo": demo}


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
    except _ERRORS as error:
        if debug:
            raise
        print(f"error: {str(error) or type(error).__name__}", file=sys.stderr)
        return 1
    finally:
        if previous is not None:
            signal.signal(signal.SIGTERM, previous)
    return 0


def _interrupt(number, frame) -> None:
    raise KeyboardInterrupt


def _in_main_thread() -> bool:
    import threading

    return threading.current_thread() is threading.main_thread()


def add_parser_for(command: ModuleType, parser: argparse.ArgumentParser) -> None:
    """Fill a parser with what a command has to say about itself."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description, parser.epilog = command.DESCRIPTION, command.EXAMPLES
    command.add_arguments(parser)
    # suppressed, so that not giving it here does not undo a --debug before the name of the command
    parser.add_argument(
        "--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of an error"
    )
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
    arguments = parser.parse_args([*(first or []), *(sys.argv[1:] if argv is None else argv)])
    return run_safely(lambda: arguments.run(arguments), getattr(arguments, "debug", False))


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
    argv = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(
        prog="hf-sparse-hopfield", description="Sparse Hopfield retrieval for transformers."
    )
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        add_parser_for(command, commands.add_parser(name, help=command.HELP))
    # The benchmark has arguments of its own and imports torch to know them.
    bench = commands.add_parser("bench", help="time retrieval against dense attention", add_help=False)
    bench.set_defaults(run=None)
    arguments, rest = parser.parse_known_args(argv)
    if arguments.run is None:
        return run_safely(lambda: _bench(rest), arguments.debug)
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    return run_safely(lambda: arguments.run(arguments), arguments.debug)


def _bench(argv: list[str]) -> None:
    from .benchmark import main as run_benchmark

    code = run_benchmark(argv)
    if code:
        raise RuntimeError(f"the benchmark ended with code {code}.")


if __name__ == "__main__":
    sys.exit(main())
