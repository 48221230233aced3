# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The Hugging Face Hub: model cards, pushing models with them, and the kernel.

- `cards.py`: the card of a model, with its `metadata.py`, `tables.py` and `support_plot.py`
- `push.py`: uploads; `trainer_push.py`: those of the Trainer; `push_errors.py`: errors that say how to continue
- `kernels.py`: the kernel that `attn_implementation="org/repo"` loads
"""

from typing import TYPE_CHECKING

from ..lazy import lazy_names


_MODULE_OF = {
    "PushError": "push_errors",
    "SparseModelCard": "cards",
    "build_kernel": "kernels",
    "kernel_settings": "kernels",
    "model_card": "cards",
    "push_folder": "push",
    "push_model": "push",
    "settings_table": "tables",
    "support_sizes": "support_plot",
}

__all__ = sorted(_MODULE_OF)

if TYPE_CHECKING:
    from .cards import SparseModelCard, model_card
    from .kernels import build_kernel, kernel_settings
    from .push import push_folder, push_model
    from .push_errors import PushError
    from .support_plot import support_sizes
    from .tables import settings_table


__getattr__, __dir__ = lazy_names(__name__, _MODULE_OF)
