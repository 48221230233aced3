# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Mathematics on tensors: no nn.Module, no transformers."""

from ..lazy import lazy_names
from .energy import (
    capacity_bound,
    capacity_constant,
    conjugate,
    energy,
    energy_gradient,
    retrieval_errors,
    separation,
    sphere_radius,
    update,
)
from .normalizers import entmax, sparsemax, support, support_size, threshold
from .plain_torch import plain_torch
from .screening import may_have_weight


__all__ = [
    "capacity_bound",
    "capacity_constant",
    "conjugate",
    "energy",
    "energy_gradient",
    "entmax",
    "explain_backend",
    "may_have_weight",
    "plain_torch",
    "retrieval_errors",
    "retrieve",
    "separation",
    "sparsemax",
    "sphere_radius",
    "support",
    "support_size",
    "threshold",
    "update",
]

# Kept for compatibility. Lazy, because `retrieval` needs the backends, which need this package.
__getattr__, __dir__ = lazy_names(__name__, {"explain_backend": "..retrieval", "retrieve": "..retrieval"})
