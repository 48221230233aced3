# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""State dicts of hflayers, and of the paper's sparse fork, which has the same keys, for the layers of this package.

The parameter names are the same, so the weights are copied unchanged. The shapes tell the sizes and which parts a layer has;
the rest (number of heads, scaling, steps, alpha) is given as arguments and written beside the weights. Weights stay on disk,
mapped into memory, except for one layer at a time.

- `state_dict.py`: reading a state dict
- `description.py`: the layers in a state dict, and the model around them
- `conversion.py`: `convert_hflayers`, and `load_layers` for its result
- `verification.py`: a layer compared with the formula
"""

from typing import TYPE_CHECKING

from ...lazy import lazy_names


_MODULE_OF = {"convert_hflayers": "conversion", "load_layers": "conversion"}

__all__ = sorted(_MODULE_OF)

if TYPE_CHECKING:
    from .conversion import convert_hflayers, load_layers


__getattr__, __dir__ = lazy_names(__name__, _MODULE_OF)
