# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Measure retrieval against torch's SDPA, eager softmax and the entmax package: forward, training, decode and memory.

    python examples/benchmarks/attention.py --quick
    python examples/benchmarks/attention.py --threads 2 --output_dir results

The same as `hf-sparse-hopfield bench`.
"""

import sys

from hf_sparse_hopfield.benchmark import main


if __name__ == "__main__":
    sys.exit(main())
