# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""One model in several processes.

- `heads.py`: the heads that this process computes, and their alpha and beta
- `data.py`: FSDP2 must come after the conversion
- `tensor.py`: tensor parallelism, where the weights of a process decide its heads
- `ulysses.py`: [`ulysses`], sequence parallelism with all-to-all exchanges around attention

Names load on first use.
"""

from typing import TYPE_CHECKING

from ..lazy import lazy_names


_MODULE_OF = {"ulysses": "ulysses"}

__all__ = sorted(_MODULE_OF)

if TYPE_CHECKING:
    from .ulysses import ulysses

__getattr__, __dir__ = lazy_names(__name__, _MODULE_OF)
