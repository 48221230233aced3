# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""A GGUF file dequantised into a dense checkpoint that transformers loads; see --help."""

import sys

from hf_sparse_hopfield.checkpoints import gguf
from hf_sparse_hopfield.cli.main import run_script


if __name__ == "__main__":
    sys.exit(run_script(gguf))
