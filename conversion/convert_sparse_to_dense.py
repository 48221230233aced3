# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Sparse checkpoint in, dense checkpoint of the original family out, with the same weights; see --help."""

import sys

from hf_sparse_hopfield.cli import to_dense
from hf_sparse_hopfield.cli.main import run_script


if __name__ == "__main__":
    sys.exit(run_script(to_dense))
