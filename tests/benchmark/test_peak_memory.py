# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Peak memory is that of a fresh process."""

import sys

import pytest

from hf_sparse_hopfield.benchmark import Work
from hf_sparse_hopfield.benchmark.peak_memory import peak_memory


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the peak memory of a process")
def test_peak_memory_in_a_fresh_process():
    work = Work("forward", 1, 4, 1024)
    assert 4 * 1024**2 * 4 < peak_memory(work, "eager softmax") < 2**30
