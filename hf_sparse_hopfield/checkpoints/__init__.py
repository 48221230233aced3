# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Checkpoints, from disk to disk.

- `loading.py`: the model and the tokenizer of a checkpoint
- `verified_saving.py`: a checkpoint that is loaded again and compared before it appears
- `known_files.py`: the files that belong to a checkpoint
- `companion_files.py`: copies those other than weights and configuration
- `conversion.py`: dense to sparse, and back
- `gguf.py`: GGUF files
- `hflayers/`: state dicts of hflayers
"""

from typing import TYPE_CHECKING

from ..lazy import lazy_names


_MODULE_OF = {
    "convert_checkpoint": "conversion",
    "convert_gguf": "gguf",
    "convert_hflayers": "hflayers",
    "dense_checkpoint": "conversion",
    "load_layers": "hflayers",
    "load_model": "loading",
    "load_tokenizer": "loading",
    "save_verified": "verified_saving",
}

__all__ = sorted(_MODULE_OF)

if TYPE_CHECKING:
    from .conversion import convert_checkpoint, dense_checkpoint
    from .gguf import convert_gguf
    from .hflayers import convert_hflayers, load_layers
    from .loading import load_model, load_tokenizer
    from .verified_saving import save_verified


__getattr__, __dir__ = lazy_names(__name__, _MODULE_OF)
