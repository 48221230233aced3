# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Sparse modern Hopfield retrieval as attention for Hugging Face Transformers.

Importing the package registers the attention `"sparse_hopfield"`, the model type of that name and those of our own models
with transformers. The public names load on first use, so that the import costs next to nothing.
"""

import importlib
from typing import TYPE_CHECKING

from .integration.registration import install as _install
from .version import __version__  # noqa: F401


_MODULE_OF = {
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
    "calibrate": "integration.calibration",
    "conjugate": "functional",
    "energy": "functional",
    "entmax": "functional",
    "explain_backend": "functional",
    "retrieve": "functional",
    "sparsemax": "functional",
    "to_dense": "integration.convert",
    "to_sparse_hopfield": "integration.convert",
}

__all__ = sorted([*_MODULE_OF, "__version__"])

if TYPE_CHECKING:
    from .configuration import SparseHopfieldConfig  # noqa: F401
    from .functional import conjugate, energy, entmax, explain_backend, retrieve, sparsemax  # noqa: F401
    from .integration.calibration import calibrate  # noqa: F401
    from .integration.convert import to_dense, to_sparse_hopfield  # noqa: F401
    from .layers import (  # noqa: F401
        HopfieldMemory,
        PolynomialMemory,
        SparseHopfield,
        SparseHopfieldLayer,
        SparseHopfieldPooling,
    )
    from .models import (  # noqa: F401
        SparseHopfieldCrossformerConfig,
        SparseHopfieldCrossformerForPrediction,
        SparseHopfieldForMultipleInstanceClassification,
        SparseHopfieldMultipleInstanceConfig,
    )


def __getattr__(name: str):
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_MODULE_OF[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


_install()
