# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`convert`: a dense checkpoint into a sparse one, calibrated if there is something to calibrate on, and back."""

import argparse

from . import to_dense
from .common import (
    add_calibration_arguments,
    add_input_arguments,
    add_output_arguments,
    calibration_options,
    command_line,
    make_batches,
    parse_alpha,
    push,
    show,
    summary,
)


HELP = "make a dense checkpoint sparse, or a sparse one dense"
DESCRIPTION = """Read a checkpoint (local directory or Hub id), make its attention sparse, write it with tokenizer, calibration
report and model card. With --text or --random, beta (and, with --alpha search, alpha) is calibrated per head: without
that, a pretrained model does poorly with alpha above 1."""
EXAMPLES = """examples:
  %(prog)s HuggingFaceTB/SmolLM2-135M smollm2-sparse --alpha 1.5 --text wikitext.valid.txt --refine_steps 32
  %(prog)s ./bert ./bert-sparse --text corpus.txt.gz --alpha search --budget 0.02
  %(prog)s ./vit ./vit-sparse --alpha 1.5 --random
  %(prog)s ./bert-sparse ./bert-again --to_dense"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("source", help="local directory or Hub id of the checkpoint")
    parser.add_argument("output", help="directory to write")
    parser.add_argument("--to_dense", action="store_true", help="the way back: a sparse checkpoint into a dense one")
    parser.add_argument("--gguf_file", help="name of a GGUF file in the source; it is dequantised")
    group = parser.add_argument_group("settings")
    group.add_argument(
        "--alpha", type=parse_alpha, help="1 softmax ... 2 sparsemax, or 'search' per head (default: 2)"
    )
    group.add_argument("--beta", type=float, help="factor on the model's own scaling, to start from (default: 1)")
    group.add_argument("--steps", type=int, help="retrieval steps (default: 1)")
    group.add_argument("--layers", nargs="+", help="only these layers, by number or name pattern")
    group.add_argument("--learn_beta", action="store_true", help="beta becomes a parameter for fine-tuning")
    group.add_argument("--learn_alpha", action="store_true", help="alpha becomes a parameter for fine-tuning")
    add_input_arguments(parser, "calibrate")
    add_calibration_arguments(parser)
    add_output_arguments(parser)


def run(arguments: argparse.Namespace) -> None:
    """Convert."""
    from ..integration.checkpoints import convert_checkpoint, gguf_options

    if arguments.to_dense:
        to_dense.run(arguments)
        return
    calibrated = arguments.text is not None or arguments.random
    if not calibrated and (arguments.alpha == "search" or arguments.budget is not None or arguments.refine_steps):
        raise ValueError(
            "--alpha search, --budget and --refine_steps need something to calibrate on: --text or --random."
        )
    result = convert_checkpoint(
        arguments.source,
        arguments.output,
        _settings(arguments),
        batches=(lambda model, tokenizer: make_batches(arguments, model, tokenizer)) if calibrated else None,
        calibration=calibration_options(arguments),
        overwrite=arguments.overwrite,
        verify=not arguments.no_verify,
        command=command_line("hf-sparse-hopfield"),
        **(gguf_options(arguments.gguf_file) if arguments.gguf_file else {}),
    )
    result = {"output": arguments.output, **summary(result), **push(arguments, arguments.output)}
    show(arguments, result, arguments.source)


def _settings(arguments: argparse.Namespace) -> dict:
    settings = {name: getattr(arguments, name) for name in ("beta", "steps") if getattr(arguments, name) is not None}
    if isinstance(arguments.alpha, float):
        settings["alpha"] = arguments.alpha
    if arguments.layers is not None:
        settings["layers"] = [int(layer) if layer.isdigit() else layer for layer in arguments.layers]
    return settings | {"learn_beta": arguments.learn_beta, "learn_alpha": arguments.learn_alpha}
