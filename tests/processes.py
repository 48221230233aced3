# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Code that needs a fresh process: import order, import cost, unpickling."""

import subprocess
import sys
import textwrap


def run_python(code: str, *arguments: object) -> str:
    """What `code` prints in a process of its own. It must succeed."""
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
