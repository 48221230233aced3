# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`bench`: how fast retrieval is on this machine."""

import argparse
from pathlib import Path


HELP = "time retrieval against dense attention"
DESCRIPTION = """Time retrieval against dense attention on this machine, measure peak memory, write JSON, Markdown and a plot, and
report which of the promised figures are met."""
EXAMPLES = """examples:
  %(prog)s --quick
  %(prog)s --threads 2 --output results --strict"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--output", type=Path, default=Path("benchmark"), help="folder for JSON, Markdown and plot")
    parser.add_argument("--quick", action="store_true", help="small sizes only; takes about a minute")
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="approximate duration of each measurement (default: %(default)s)"
    )
    parser.add_argument("--threads", type=int, help="threads of torch (default: chosen by torch)")
    parser.add_argument(
        "--instructions", help="limit the compiled core to an instruction set: generic, AVX2, AVX-VNNI or AVX-512"
    )
    parser.add_argument("--no-memory", action="store_true", help="do not measure peak memory")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a promise is missed")


def run(arguments: argparse.Namespace) -> None:
    """Measure."""
    from ..benchmark import run_and_write

    missed = run_and_write(arguments)
    if missed and arguments.strict:
        raise RuntimeError(f"{missed} promises were missed.")
