# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The command line, `hf-sparse-hopfield`: one file per command.

A command is a module with `HELP`, `DESCRIPTION`, `EXAMPLES`, `add_arguments(parser)` and `run(arguments)`. It imports what it
needs only when it runs, so that `--help` is fast. The scripts in `conversion/` have the same form, without `HELP`.
"""

from .main import main, run_script


__all__ = ["main", "run_script"]
