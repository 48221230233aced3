# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Dense checkpoint in, sparse checkpoint out. The same as `hf-sparse-hopfield convert`; see --help."""

import sys

from hf_sparse_hopfield.cli import convert
from hf_sparse_hopfield.cli.main import run_script


if __name__ == "__main__":
    sys.exit(run_script(convert))
