# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Builds the compiled core in special ways and runs the tests of the core on it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from hf_sparse_hopfield.backends import native


SOURCE = Path(native.__file__).parent / "source"
COMPILER = shutil.which("g++")
TESTS = ("native", "library", "ops", "screening")


def build(target: Path, *flags: str, source: Path = SOURCE) -> None:
    """
    Build the core.

    Args:
        target (`Path`): The library to write.
        *flags (`str`): Flags of the compiler.
        source (`Path`, *optional*): The folder of the sources.
    """
    sources = sorted(str(path) for path in source.rglob("*.cpp"))
    common = ("-std=c++17", "-fPIC", "-fopenmp", "-w", "-shared")
    built = subprocess.run([COMPILER or "g++", *common, *flags, *sources, "-o", str(target)], capture_output=True)
    assert built.returncode == 0, built.stderr.decode()


def run_tests(core: Path, selection: str, **environment: str) -> None:
    """
    Run the tests of the core on another build of it.

    Args:
        core (`Path`): The library.
        selection (`str`): As for `pytest -k`.
        **environment (`str`): Variables to set besides.
    """
    tests = [str(Path(__file__).with_name(f"test_{name}.py")) for name in TESTS]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-s", "-p", "no:cacheprovider", *tests, "-k", selection]
    variables = os.environ | {"HF_SPARSE_HOPFIELD_CORE": str(core)} | environment
    result = subprocess.run(command, env=variables, capture_output=True, text=True, cwd=Path(__file__).parents[3])
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-8000:]
    assert " passed" in result.stdout
