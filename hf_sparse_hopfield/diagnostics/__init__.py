# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""How the heads of a sparse model use their keys: counts, weights and plots."""

from .associations import record_associations
from .explorer import write_explorer
from .plots import plot_associations, plot_sparsity
from .sparsity import SparsityReport, layer_sparsity, sparsity_report


__all__ = [
    "SparsityReport",
    "layer_sparsity",
    "plot_associations",
    "plot_sparsity",
    "record_associations",
    "sparsity_report",
    "write_explorer",
]
