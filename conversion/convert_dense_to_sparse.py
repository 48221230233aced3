# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Dense checkpoints to sparse ones: the command `hf-sparse-hopfield convert` as a script. See --help."""

import sys

from hf_sparse_hopfield.cli import convert, run_script


if __name__ == "__main__":
    sys.exit(run_script(convert))
