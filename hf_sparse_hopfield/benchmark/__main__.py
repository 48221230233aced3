# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`python -m hf_sparse_hopfield.benchmark`, the same as `hf-sparse-hopfield bench`."""

import sys

from .suite import main


if __name__ == "__main__":
    sys.exit(main())
