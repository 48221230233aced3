# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Modules that retrieve: the three Hopfield layers, and associative memories that need no training."""

from ..retrieval_parameters import RetrievalParameters
from .hopfield import SparseHopfield
from .lookup import SparseHopfieldLayer
from .memory import HopfieldMemory, MemoryMatches, MemoryTrace, PolynomialMemory
from .pooling import SparseHopfieldPooling


__all__ = [
    "HopfieldMemory",
    "MemoryMatches",
    "MemoryTrace",
    "PolynomialMemory",
    "RetrievalParameters",
    "SparseHopfield",
    "SparseHopfieldLayer",
    "SparseHopfieldPooling",
]
