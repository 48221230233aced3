# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Normalisers, betas and limits of the energy experiment."""

NORMALIZERS = {"softmax": 1.0, "entmax15": 1.5, "sparsemax": 2.0}
LANDSCAPE_BETAS = (1.0, 4.0)
ATTENTION_BETAS = (0.5, 1.0, 2.0, 4.0)
# beta times the median separation of the patterns, which makes sources comparable
RELATIVE_BETAS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
PATTERNS = 100
LIMIT = 200
TOLERANCE = 1e-4
