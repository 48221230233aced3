# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""GGUF files, dequantised, to dense checkpoints that transformers loads. See --help."""

import argparse
import sys

from hf_sparse_hopfield.cli import run_script
from hf_sparse_hopfield.cli.arguments import add_output_arguments, show_progress
from hf_sparse_hopfield.cli.output import write_checkpoint


DESCRIPTION = """Read a GGUF file, dequantise it to float32 and write it, with its tokenizer, as a checkpoint that transformers loads.
Needs the package gguf."""
EXAMPLES = """examples:
  %(prog)s ./SmolLM2-135M-Instruct.Q4_1.gguf ./smollm2"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("source", help="the GGUF file")
    parser.add_argument("output", help="directory to write")
    add_output_arguments(parser)


def run(arguments: argparse.Namespace) -> None:
    """Convert."""
    from hf_sparse_hopfield.checkpoints import convert_gguf

    write_checkpoint(arguments, convert_gguf, progress=show_progress(arguments))


if __name__ == "__main__":
    sys.exit(run_script(sys.modules[__name__]))
