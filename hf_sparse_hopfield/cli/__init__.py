# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The command line, `hf-sparse-hopfield`: one file per command.

A command is a module with `HELP`, `DESCRIPTION`, `EXAMPLES`, `add_arguments(parser)` and `run(arguments)`. It imports what it
needs only when it runs, so that `--help` is fast. The scripts in `conversion/` have the same form, without `HELP`.
"""

import sys


try:
    from .main import main, run_script
except KeyboardInterrupt:  # Ctrl-C while Python still loads modules
    print("interrupted", file=sys.stderr)
    raise SystemExit(130) from None


__all__ = ["main", "run_script"]
