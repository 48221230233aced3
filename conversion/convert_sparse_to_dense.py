# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Sparse checkpoints to dense ones of their original family, with the same weights. See --help."""

import argparse
import sys

from hf_sparse_hopfield.cli import run_script
from hf_sparse_hopfield.cli.arguments import add_output_arguments
from hf_sparse_hopfield.cli.output import write_checkpoint


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
    from hf_sparse_hopfield.checkpoints import dense_checkpoint

    write_checkpoint(arguments, dense_checkpoint)


if __name__ == "__main__":
    sys.exit(run_script(sys.modules[__name__]))
