# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`bench`: how fast retrieval is on this machine."""

import argparse
from pathlib import Path


HELP = "time retrieval against dense attention"
DESCRIPTION = """Time retrieval against dense attention on this machine, measure peak memory, write JSON, Markdown and a plot, and
report which of the promised figures are met. With --device cuda, do so on a GPU, for which nothing is promised, or measure which
tiles suit it."""
EXAMPLES = """examples:
  %(prog)s --quick
  %(prog)s --threads 2 --output_dir results --strict
  %(prog)s --device cuda --output_dir results
  %(prog)s --device cuda --autotune --output_dir results && export HF_SPARSE_HOPFIELD_TILES=results/tiles.json"""

_SECONDS, _QUICK_SECONDS = 2.0, 0.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--output_dir", type=Path, default=Path("benchmark"), help="folder for JSON, Markdown and plot"
    )
    parser.add_argument(
        "--device",
        choices=["cpu", "cuda", "interpreter"],  # Triton's interpreter is for our tests
        metavar="{cpu,cuda}",
        default="cpu",
        help="cuda: a GPU of NVIDIA or AMD (default: %(default)s)",
    )
    parser.add_argument(
        "--autotune",
        action="store_true",
        help="with --device cuda: instead of the benchmark, write the fastest tiles of our kernels to tiles.json",
    )
    parser.add_argument("--quick", action="store_true", help="small sizes only; takes about a minute on two cores")
    parser.add_argument(
        "--seconds",
        type=float,
        help="approximate duration of each measurement; one that takes longer is repeated a few times (default: "
        f"{_SECONDS:g}, with --quick {_QUICK_SECONDS:g})",
    )
    parser.add_argument("--threads", type=int, help="threads of torch on the CPU (default: chosen by torch)")
    parser.add_argument(
        "--instructions", help="limit the compiled core to an instruction set: generic, AVX2, AVX-VNNI or AVX-512"
    )
    parser.add_argument("--no_memory", action="store_true", help="do not measure peak memory")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a promise is missed; on CPUs only")


def run(arguments: argparse.Namespace) -> None:
    """Measure."""
    from ..benchmark import run_and_write

    if arguments.seconds is None:
        arguments.seconds = _QUICK_SECONDS if arguments.quick else _SECONDS
    missed = run_and_write(arguments)
    if missed and arguments.strict:
        raise RuntimeError(f"{missed} promises were missed.")
