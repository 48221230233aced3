# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`calibrate`: choose new beta (and alpha) for every head of a sparse checkpoint."""

import argparse

from .arguments import (
    TERMS,
    add_calibration_arguments,
    add_distillation_arguments,
    add_input_arguments,
    add_output_arguments,
    parse_alpha,
)
from .output import write_sparse


HELP = "choose beta (and alpha) per head of a sparse checkpoint"
DESCRIPTION = """Read a checkpoint, choose the settings of every head on a text (or random inputs) so that the model does what the
dense one did, and write the result."""
EXAMPLES = """examples:
  %(prog)s ./smollm2-sparse ./smollm2-calibrated --text wikitext.valid.txt
  %(prog)s ./bert-sparse ./bert-sparser --text corpus.txt --objective support --target_support 0.05

"""
EXAMPLES += TERMS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("source", help="local directory or Hub id of the checkpoint")
    parser.add_argument("output", help="directory to write")
    parser.add_argument(
        "--alpha", type=parse_alpha, help="a number for all heads, or 'search' (default: that of the checkpoint)"
    )
    add_input_arguments(parser, "calibrate", batches=None)
    add_calibration_arguments(parser)
    add_distillation_arguments(parser)
    add_output_arguments(parser)


def run(arguments: argparse.Namespace) -> None:
    """Run the command."""
    if arguments.text is None and not arguments.random:
        raise ValueError("there is nothing to calibrate on: give --text FILE or --random.")
    write_sparse(arguments, None)
