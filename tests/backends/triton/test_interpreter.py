# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Runs the tests of the kernels under Triton's interpreter. Triton reads TRITON_INTERPRET at import: a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .conditions import INTERPRETED, needs_triton


pytestmark = [needs_triton, pytest.mark.skipif(INTERPRETED, reason="this is the inner run")]
HERE = Path(__file__).parent


@pytest.mark.parametrize(
    "file",
    ["test_forward_backward.py", "test_decode.py", "test_tiles_visited.py", "test_devices.py"],
)
def test_under_the_interpreter(file):
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        str(HERE / file),
    ]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    environment.pop("PYTEST_XDIST_WORKER", None)
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
    assert " passed" in result.stdout
