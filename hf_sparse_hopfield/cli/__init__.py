# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The command line, `hf-sparse-hopfield`: one file per command, each with `add_arguments(parser)` and `run(arguments)`.

The scripts in `conversion/` run the same commands. A command imports what it needs only when it runs.
"""

from .main import main, run_script


__all__ = ["main", "run_script"]
