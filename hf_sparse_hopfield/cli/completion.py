# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`completion`: commands, options and files that the Tab key completes."""

import argparse
import json
from collections.abc import Iterator

from ..extras import require


_FILES = {"data", "text", "png", "html", "resume_from", "output_file"}
_DIRECTORIES = {"dense", "sparse", "source", "output", "output_dir", "checkpoints"}

HELP = "a script with which bash or zsh complete commands and options"
DESCRIPTION = (
    """Print a script for a shell. With it, the Tab key completes commands, options, their choices and files."""
)
EXAMPLES = """examples:
  eval "$(%(prog)s bash)"                 (now, or in ~/.bashrc)
  %(prog)s zsh > ~/.zfunc/_hf-sparse-hopfield
docs/command_line.md says where shells look for such files."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("shell", choices=("bash", "zsh"), help="the shell")


def run(arguments: argparse.Namespace) -> None:
    """Print the script."""
    from .main import make_parser

    shtab, parser = require("shtab", "cli"), make_parser()
    for action in _actions(parser):
        if action.dest in _FILES | _DIRECTORIES:
            action.complete = shtab.FILE if action.dest in _FILES else shtab.DIRECTORY  # type: ignore[attr-defined]  # of shtab
    script = shtab.complete(parser, arguments.shell)
    print(json.dumps({"script": script}) if arguments.json else script)


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The arguments of a parser and of its commands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
