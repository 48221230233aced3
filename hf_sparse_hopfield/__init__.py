# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Sparse modern Hopfield retrieval as attention for Hugging Face Transformers.

Importing the package registers the attention `"sparse_hopfield"`, the model type of that name and those of our own models
with transformers. The public names load on first use, so that the import costs next to nothing.
"""

from typing import TYPE_CHECKING

from .integration.registration import install as _install
from .lazy import lazy_names
from .version import __version__


_MODULE_OF = {
    "CalibrationOptions": "calibration.recipe",
    "HopfieldMemory": "layers",
    "PolynomialMemory": "layers",
    "SparseHopfield": "layers",
    "SparseHopfieldConfig": "configuration",
    "SparseHopfieldCrossformerConfig": "models",
    "SparseHopfieldCrossformerForPrediction": "models",
    "SparseHopfieldForMultipleInstanceClassification": "models",
    "SparseHopfieldLayer": "layers",
    "SparseHopfieldMultipleInstanceConfig": "models",
    "SparseHopfieldPooling": "layers",
    "calibrate": "calibration.calibration",
    "conjugate": "functional",
    "energy": "functional",
    "entmax": "functional",
    "explain_backend": "retrieval",
    "retrieve": "retrieval",
    "sparsemax": "functional",
    "to_dense": "integration.convert",
    "to_sparse_hopfield": "integration.convert",
}

__all__ = sorted([*_MODULE_OF, "__version__"])

if TYPE_CHECKING:
    from .calibration.calibration import calibrate
    from .calibration.recipe import CalibrationOptions
    from .configuration import SparseHopfieldConfig
    from .functional import conjugate, energy, entmax, explain_backend, retrieve, sparsemax
    from .integration.convert import to_dense, to_sparse_hopfield
    from .layers import HopfieldMemory, PolynomialMemory, SparseHopfield, SparseHopfieldLayer, SparseHopfieldPooling
    from .models import (
        SparseHopfieldCrossformerConfig,
        SparseHopfieldCrossformerForPrediction,
        SparseHopfieldForMultipleInstanceClassification,
        SparseHopfieldMultipleInstanceConfig,
    )


__getattr__, __dir__ = lazy_names(__name__, _MODULE_OF)

_install()
