# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Compare a sparse checkpoint with the dense one on a task: quality, speed, memory and support side by side.

Names load on first use, so that the command line reads the options without importing torch.
"""

from typing import TYPE_CHECKING

from ..lazy import lazy_names


_MODULE_OF = {
    "CompareOptions": "options",
    "ComparisonReport": "report",
    "compare": "comparison",
    "write_comparison": "html_report",
}

__all__ = sorted(_MODULE_OF)

if TYPE_CHECKING:
    from .comparison import compare
    from .html_report import write_comparison
    from .options import CompareOptions
    from .report import ComparisonReport

__getattr__, __dir__ = lazy_names(__name__, _MODULE_OF)
