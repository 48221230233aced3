# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The tests of the compiled core, run on a core built with the address and undefined-behaviour sanitizers."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hf_sparse_hopfield.backends import native


SOURCE = Path(native.__file__).parent / "source"
COMPILER = shutil.which("g++")
FLAGS = ("-O1", "-g", "-std=c++17", "-fPIC", "-fopenmp", "-fno-omit-frame-pointer", "-w")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")


def runtime(name: str) -> str:
    """Path of a sanitizer's library, which has to be loaded before Python itself."""
    return subprocess.run([COMPILER, f"-print-file-name={name}"], capture_output=True, text=True).stdout.strip()


@pytest.mark.slow
@pytest.mark.skipif(COMPILER is None, reason="needs g++ to build the core with sanitizers")
def test_no_sanitizer_complains(tmp_path):
    preload = runtime("libasan.so")
    if not os.path.isabs(preload):
        pytest.skip("g++ has no address sanitizer here")
    core = tmp_path / "_core.so"
    sources = sorted(str(path) for path in SOURCE.glob("*.cpp"))
    built = subprocess.run([COMPILER, *FLAGS, *SANITIZERS, "-shared", *sources, "-o", str(core)], capture_output=True)
    assert built.returncode == 0, built.stderr.decode()
    environment = dict(
        os.environ,
        # with the C++ library, or the sanitizer misses what it intercepts when torch throws an exception
        LD_PRELOAD=f"{preload} {runtime('libstdc++.so.6')}",
        HF_SPARSE_HOPFIELD_CORE=str(core),
        # Python and torch keep memory until the end, and torch's allocations are not under test
        ASAN_OPTIONS="detect_leaks=0:detect_odr_violation=0",
        UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1",
        OMP_NUM_THREADS="2",
    )
    tests = [str(Path(__file__).with_name(f"test_{name}.py")) for name in ("native", "library", "ops")]
    # torch.compile starts compilers, which fail with the preloaded library
    selection = "not compile and not long_rows and not half_precision"
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-s", "-p", "no:cacheprovider", *tests, "-k", selection]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=Path(__file__).parents[3])
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-8000:]
    assert " passed" in result.stdout
