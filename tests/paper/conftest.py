# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The experiments are scripts, not a package: their folder must be on the path."""

import sys
from pathlib import Path


EXAMPLES = Path(__file__).parents[2] / "examples"
for folder in (EXAMPLES, EXAMPLES / "paper"):
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
