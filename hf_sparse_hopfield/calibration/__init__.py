# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Choose alpha and beta of every head, so that a sparse model does what the dense model did.

- `calibration.py`: [`calibrate`], the steps in order
- `recipe.py`: the options and their defaults, for Python, the command line and training scripts alike
- `head_search.py`: the search for each head alone
- `budget.py`: the sparsest model within a share of the dense loss
- `refinement.py`: gradient steps on all heads together
- `distillation.py`: [`distill`], training of the attention on the dense model's outputs; `distillation_module.py`: what is trained
- `support_constraint.py`: a limit on the support, kept while training
- `comparison.py`: the sparse model beside its dense twin
- `report.py`: the result
- `resume.py`: the file from which an interrupted calibration resumes

Names load on first use, so that the command line reads the recipe without importing torch.
"""

from typing import TYPE_CHECKING

from ..lazy import lazy_names


_MODULE_OF = {
    "CalibrationOptions": "recipe",
    "CalibrationReport": "report",
    "DistillationOptions": "recipe",
    "DistillationReport": "report",
    "calibrate": "calibration",
    "distill": "distillation",
}

__all__ = sorted(_MODULE_OF)

if TYPE_CHECKING:
    from .calibration import calibrate
    from .distillation import distill
    from .recipe import CalibrationOptions, DistillationOptions
    from .report import CalibrationReport, DistillationReport

__getattr__, __dir__ = lazy_names(__name__, _MODULE_OF)
