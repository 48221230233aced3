# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The speed of retrieval compared with dense attention: `hf-sparse-hopfield bench`.

Times are medians of runs that alternate between the methods, so that other load on the machine affects all alike. Peak
memory is measured in a fresh process for each method. The results are written as JSON, as a Markdown table and as a
plot. For every figure that the project promises, the benchmark prints whether this machine met it.
"""

from .suite import main, run, run_and_write
from .timing import keep_freed_memory, measure, time_interleaved
from .work import Work, sharpness_for


__all__ = [
    "Work",
    "keep_freed_memory",
    "main",
    "measure",
    "run",
    "run_and_write",
    "sharpness_for",
    "time_interleaved",
]
