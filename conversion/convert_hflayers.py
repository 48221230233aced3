# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""State dicts of hflayers, and of the paper's sparse fork of it, for the layers of this package; see --help."""

import sys

from hf_sparse_hopfield.checkpoints import hflayers
from hf_sparse_hopfield.cli.main import run_script


if __name__ == "__main__":
    sys.exit(run_script(hflayers))
