# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Sparse modern Hopfield retrieval as attention for Hugging Face Transformers.

Importing the package registers the attention `"sparse_hopfield"`, the model type of the same name and the types of our own
models with transformers. The public names load on first use, which keeps the import fast.
"""

from typing import TYPE_CHECKING

from .integration import upstream as _upstream
from .lazy import lazy_names
from .version import __version__


_MODULE_OF = {
    "CalibrationOptions": "calibration.recipe",
    "DistillationOptions": "calibration.recipe",
    "HopfieldMemory": "layers",
    "KeyScreen": "backends",
    "PolynomialMemory": "layers",
    "SparseHopfield": "layers",
    "SparseHopfieldCache": "integration.cache",
    "SparseHopfieldConfig": "configuration",
    "SparseHopfieldCrossformerConfig": "models",
    "SparseHopfieldCrossformerForPrediction": "models",
    "SparseHopfieldForMultipleInstanceClassification": "models",
    "SparseHopfieldLayer": "layers",
    "SparseHopfieldMultipleInstanceConfig": "models",
    "SparseHopfieldPooling": "layers",
    "calibrate": "calibration.calibration",
    "distill": "calibration.distillation",
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
    from .backends import KeyScreen
    from .calibration.calibration import calibrate
    from .calibration.distillation import distill
    from .calibration.recipe import CalibrationOptions, DistillationOptions
    from .configuration import SparseHopfieldConfig
    from .functional import conjugate, energy, entmax, sparsemax
    from .integration.cache import SparseHopfieldCache
    from .integration.convert import to_dense, to_sparse_hopfield
    from .layers import HopfieldMemory, PolynomialMemory, SparseHopfield, SparseHopfieldLayer, SparseHopfieldPooling
    from .models.crossformer.configuration_crossformer import SparseHopfieldCrossformerConfig
    from .models.crossformer.modeling_crossformer import SparseHopfieldCrossformerForPrediction
    from .models.multiple_instance.configuration_multiple_instance import SparseHopfieldMultipleInstanceConfig
    from .models.multiple_instance.modeling_multiple_instance import SparseHopfieldForMultipleInstanceClassification
    from .retrieval import explain_backend, retrieve


__getattr__, __dir__ = lazy_names(__name__, _MODULE_OF)

_upstream.check_versions()
_upstream.install()
