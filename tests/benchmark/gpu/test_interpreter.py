# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Runs the tests of this folder under Triton's interpreter. Triton reads TRITON_INTERPRET at import: a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ...backends.triton.conditions import INTERPRETED, needs_triton


@needs_triton
@pytest.mark.skipif(INTERPRETED, reason="this is the inner run")
def test_under_the_interpreter():
    options = ["-q", "-x", "-m", "gpu", "-p", "no:cacheprovider", "-p", "no:xdist"]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    environment.pop("PYTEST_XDIST_WORKER", None)
    command = [sys.executable, "-m", "pytest", *options, str(Path(__file__).parent)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
    assert " passed" in result.stdout
