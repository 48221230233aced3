# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The command line, `hf-sparse-hopfield`. Every command imports what it needs only when it runs."""

import argparse
import os
import sys

from .version import __version__


def _add_demo(commands) -> None:
    parser = commands.add_parser(
        "demo",
        help="train, retrieve and report on embedded data, with pictures, in about a minute",
        description="Store and recall patterns, then train sparse and dense pooling with Trainer. Nothing is downloaded.",
    )
    parser.add_argument("--output_dir", default="sparse_hopfield_demo", help="where pictures and the model go")
    parser.add_argument("--overwrite", action="store_true", help="write into an output_dir that exists already")
    parser.add_argument("--epochs", type=int, default=30, help="epochs of training (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of everything random (default: %(default)s)")
    parser.set_defaults(run=_run_demo)


def _run_demo(arguments: argparse.Namespace) -> None:
    from .demo import run_demo

    run_demo(arguments.output_dir, epochs=arguments.epochs, seed=arguments.seed, overwrite=arguments.overwrite)


def main(argv: list[str] | None = None) -> int:
    """
    Run a command.

    Args:
        argv (`list[str]`, *optional*, defaults to `sys.argv[1:]`): Arguments.

    Returns:
        `int`: 0 if all went well, 1 if the command failed (the error goes to stderr, its traceback with `--debug`), 2 for
        arguments that do not parse.

    Example:

    ```python
    >>> from hf_sparse_hopfield.cli import main

    >>> main(["demo", "--epochs", "0", "--output_dir", "nowhere"])
    1
    ```
    """
    parser = argparse.ArgumentParser(
        prog="hf-sparse-hopfield", description="Sparse Hopfield retrieval for transformers."
    )
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_demo(commands)
    arguments = parser.parse_args(argv)
    try:
        arguments.run(arguments)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # whoever read our output (`| head`) has left; python would complain once more while it flushes at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, TypeError, OSError, ImportError, RuntimeError) as error:
        if arguments.debug:
            raise
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
