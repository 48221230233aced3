# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""A sparse checkpoint into a dense one of its original family."""

import argparse

from .arguments import add_output_arguments, check_push, push, show


HELP = "make a sparse checkpoint dense"
DESCRIPTION = """Read a sparse checkpoint and write the dense one of its original family, with the same weights. Learned alpha and
beta are dropped: this is the exact inverse of the conversion."""
EXAMPLES = """examples:
  %(prog)s ./bert-sparse ./bert-again"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("source", help="local directory or Hub id of the sparse checkpoint")
    parser.add_argument("output", help="directory to write")
    add_output_arguments(parser)


def run(arguments: argparse.Namespace) -> None:
    """Convert."""
    from ..checkpoints.conversion import dense_checkpoint

    check_push(arguments)
    result = dense_checkpoint(
        arguments.source, arguments.output, overwrite=arguments.overwrite, verify=not arguments.no_verify
    )
    show(arguments, {"output": arguments.output, **result, **push(arguments, arguments.output)}, arguments.source)
