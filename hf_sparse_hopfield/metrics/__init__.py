# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Metrics as modules of the package evaluate, in files of this package: loading one downloads nothing.

Each folder is a module as `evaluate.load` takes it. evaluate copies it to its cache and reads its imports line by line, so that a module has
one import on each line and imports nothing from this package.
"""

from .loading import METRICS, load_metric


__all__ = ["METRICS", "load_metric"]
