# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`convert`: make a dense checkpoint sparse, calibrated if there are inputs to calibrate on, or a sparse one dense."""

import argparse

from .arguments import (
    CALIBRATION_ARGUMENTS,
    DISTILLATION_ARGUMENTS,
    INPUT_ARGUMENTS,
    TERMS,
    add_calibration_arguments,
    add_distillation_arguments,
    add_input_arguments,
    add_output_arguments,
    given,
    parse_alpha,
    show_progress,
)
from .output import write_checkpoint, write_sparse


HELP = "make a dense checkpoint sparse, or a sparse one dense"
DESCRIPTION = """Read a checkpoint (local directory or Hub id), make its attention sparse, and write it with its tokenizer, a
calibration report and a model card. --text or --random calibrates beta (and, with --alpha search, alpha) per head; without
calibration, a pretrained model does poorly with alpha above 1. --distill then trains the attention on what the dense model does."""
EXAMPLES = """examples:
  %(prog)s HuggingFaceTB/SmolLM2-135M smollm2-sparse --alpha 1.5 --text wikitext.valid.txt
  %(prog)s ./bert ./bert-sparse --text corpus.txt.gz --alpha search --budget 0.02
  %(prog)s HuggingFaceTB/SmolLM2-135M smollm2-sparse --alpha 1.5 --text self corpus.txt --distill --max_support 0.1 --bf16
  %(prog)s ./vit ./vit-sparse --alpha 1.5 --random
  %(prog)s ./bert-sparse ./bert-again --to_dense

"""
EXAMPLES += TERMS


_SETTINGS = ("alpha", "beta", "steps", "layers", "learn_beta", "learn_alpha", "gguf_file", "text", "random")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("source", help="local directory or Hub id of the checkpoint")
    parser.add_argument("output", help="directory to write")
    parser.add_argument("--to_dense", action="store_true", help="the reverse: make a sparse checkpoint dense")
    parser.add_argument("--gguf_file", help="name of a GGUF file in the source, to dequantise")
    group = parser.add_argument_group("settings")
    group.add_argument(
        "--alpha", type=parse_alpha, help="1 softmax ... 2 sparsemax, or 'search' per head (default: 2)"
    )
    group.add_argument("--beta", type=float, help="initial factor on the model's own scaling (default: 1)")
    group.add_argument("--steps", type=int, help="retrieval steps (default: 1)")
    group.add_argument("--layers", nargs="+", help="only these layers, by number or name pattern")
    group.add_argument("--learn_beta", action="store_true", help="beta becomes a parameter for fine-tuning")
    group.add_argument("--learn_alpha", action="store_true", help="alpha becomes a parameter for fine-tuning")
    add_input_arguments(parser, "calibrate", batches=None)
    add_calibration_arguments(parser)
    add_distillation_arguments(parser)
    add_output_arguments(parser)


def run(arguments: argparse.Namespace) -> None:
    """Run the command."""
    from ..checkpoints.conversion import dense_checkpoint
    from ..checkpoints.gguf import gguf_options

    wanted = [*given(arguments, (*CALIBRATION_ARGUMENTS, *INPUT_ARGUMENTS, "distill", *DISTILLATION_ARGUMENTS))]
    if arguments.to_dense:
        wanted += given(arguments, _SETTINGS)
        if wanted:
            raise ValueError(f"--to_dense restores the dense model: --{wanted[0]} has no meaning with it.")
        write_checkpoint(arguments, dense_checkpoint, progress=show_progress(arguments))
        return
    if arguments.alpha == "search":
        wanted.append("alpha search")
    if wanted and arguments.text is None and not arguments.random:
        raise ValueError(f"--{wanted[0]} needs something to calibrate on: give --text FILE or --random.")
    write_sparse(arguments, _settings(arguments), **(gguf_options(arguments.gguf_file) if arguments.gguf_file else {}))


def _settings(arguments: argparse.Namespace) -> dict:
    settings = {name: getattr(arguments, name) for name in ("beta", "steps") if getattr(arguments, name) is not None}
    if arguments.alpha != "search":
        settings["alpha"] = 2.0 if arguments.alpha is None else arguments.alpha
    if arguments.layers is not None:
        settings["layers"] = [int(layer) if layer.isdigit() else layer for layer in arguments.layers]
    return settings | {"learn_beta": arguments.learn_beta, "learn_alpha": arguments.learn_alpha}
