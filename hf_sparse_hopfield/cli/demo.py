# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`demo`: the whole workflow on embedded data."""

import argparse
import json

from .arguments import show_progress


HELP = "train, convert, calibrate, fine-tune, save and reload a small model, with plots, in a minute or two"
DESCRIPTION = """Recall patterns from a memory; train a small dense language model on embedded text, make it sparse with calibration,
fine-tune it with Trainer, save and reload it, and show what changes. Nothing is downloaded."""
EXAMPLES = """examples:
  %(prog)s
  %(prog)s --output_dir somewhere --steps 400 --seed 1"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--output_dir",
        default="sparse_hopfield_demo",
        help="directory for the plots and the model (default: %(default)s)",
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="replace an output_dir that holds only what the demo wrote"
    )
    parser.add_argument(
        "--steps", type=int, default=150, help="training steps of the dense model (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="random seed (default: %(default)s)")


def run(arguments: argparse.Namespace) -> None:
    """Run the demo."""
    from ..demo import run_demo

    result = run_demo(
        arguments.output_dir,
        steps=arguments.steps,
        seed=arguments.seed,
        overwrite=arguments.overwrite,
        quiet=arguments.json,
        progress=show_progress(arguments),
    )
    if arguments.json:
        print(json.dumps(result, indent=2))
