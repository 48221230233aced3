# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""A GGUF file into a dense checkpoint. Reading GGUF takes a minute: do it once, and convert what it gives."""

import argparse
from pathlib import Path

from ..cli.arguments import add_output_arguments, check_push, push, show
from ..extras import require


HELP = "dequantise a GGUF file"
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
    require("gguf", "gguf")
    from ..files import check_output
    from .conversion import gguf_options, inputs_to_verify, load_model, load_tokenizer, save_verified

    check_push(arguments)
    source = Path(arguments.source)
    if not source.is_file():
        raise FileNotFoundError(f"source {str(source)!r} is not a file.")
    check_output(arguments.output, arguments.overwrite, source=str(source))
    options = gguf_options(source.name)
    holder = [load_model(str(source.parent), **options)]
    tokenizer = load_tokenizer(str(source.parent), gguf_file=source.name)
    inputs = None if arguments.no_verify else inputs_to_verify(holder[0])
    result = save_verified(holder, tokenizer, arguments.output, overwrite=arguments.overwrite, inputs=inputs)
    show(arguments, {"output": arguments.output, **result, **push(arguments, arguments.output)}, arguments.source)
