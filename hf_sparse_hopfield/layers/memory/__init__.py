# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Associative memories that need no training: `HopfieldMemory`, and `PolynomialMemory` to compare it with."""

from .hopfield_memory import HopfieldMemory
from .matches import MemoryMatches, MemoryTrace
from .polynomial_memory import PolynomialMemory


__all__ = ["HopfieldMemory", "MemoryMatches", "MemoryTrace", "PolynomialMemory"]
