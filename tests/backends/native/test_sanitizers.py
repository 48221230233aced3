# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The tests of the compiled core, run on a core built with the address and undefined-behaviour sanitizers."""

import os
import subprocess

import pytest

from .core_building import COMPILER, build, run_tests


FLAGS = ("-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")


def runtime(name: str) -> str:
    """Path of a sanitizer's library, which has to be loaded before Python itself."""
    return subprocess.run([COMPILER, f"-print-file-name={name}"], capture_output=True, text=True).stdout.strip()


@pytest.mark.slow
@pytest.mark.skipif(COMPILER is None, reason="needs g++ to build the core with sanitizers")
def test_no_sanitizer_complains(tmp_path):
    preload = runtime("libasan.so")
    if not os.path.isabs(preload):
        pytest.skip("g++ has no address sanitizer here")
    build(tmp_path / "_core.so", *FLAGS)
    run_tests(
        tmp_path / "_core.so",
        # torch.compile starts compilers, which fail with the preloaded library
        "not compile and not long_rows and not half_precision[",
        # with the C++ library, or the sanitizer misses what it intercepts when torch throws an exception
        LD_PRELOAD=f"{preload} {runtime('libstdc++.so.6')}",
        # Python and torch keep memory until the end, and torch's allocations are not under test
        ASAN_OPTIONS="detect_leaks=0:detect_odr_violation=0",
        UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1",
        OMP_NUM_THREADS="2",
    )
