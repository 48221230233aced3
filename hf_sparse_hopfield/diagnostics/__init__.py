# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""What a sparse model's heads do: which keys they use, how many, and pictures of it."""

from .associations import record_associations
from .layers import layer_sparsity
from .plots import plot_associations, plot_sparsity, write_html_report
from .sparsity import SparsityReport, sparsity_report


__all__ = [
    "SparsityReport",
    "layer_sparsity",
    "plot_associations",
    "plot_sparsity",
    "record_associations",
    "sparsity_report",
    "write_html_report",
]
