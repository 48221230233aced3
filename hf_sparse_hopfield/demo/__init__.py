# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`hf-sparse-hopfield demo`: the whole workflow on embedded data, without downloads.

- `run.py`: the demo
- `digits.py`: a memory of ten digits
- `echoes.py`: the task of the language model, on the text in `text.py`
"""

from typing import TYPE_CHECKING

from ..lazy import lazy_names


_MODULE_OF = {"digit_patterns": "digits", "make_tokenizer": "echoes", "run_demo": "run"}

__all__ = sorted(_MODULE_OF)

if TYPE_CHECKING:
    from .digits import digit_patterns
    from .echoes import make_tokenizer
    from .run import run_demo


__getattr__, __dir__ = lazy_names(__name__, _MODULE_OF)
