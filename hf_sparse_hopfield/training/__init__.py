# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Training with transformers' `Trainer`: arguments, schedules, sparsity logging, optimizer groups, safe resuming.

- `arguments.py`: `SparseHopfieldArguments`, the command line of a script
- `trainer.py`: `SparseHopfieldTrainer` and the mixin for any other trainer: adds the callbacks, and groups learned alpha
  and beta for the optimizer
- `schedules.py`: alpha and beta as functions of the step; `sparsity_logging.py`: how sparse the heads are, for any `report_to`
- `resuming.py`: `last_whole_checkpoint`, the checkpoint to resume from after a crash

Schedules also work for your own models made of Hopfield layers, if their configuration has the fields `alpha` and `beta`:
there they write their values, which are saved with the model. [`SparseHopfieldArguments.layer_settings`] gives the values for
such a configuration.

Names load on first use.
"""

from typing import TYPE_CHECKING

from ..lazy import lazy_names


_MODULE_OF = {
    "SparseHopfieldArguments": "arguments",
    "SparseHopfieldScheduleCallback": "schedules",
    "SparseHopfieldSeq2SeqTrainer": "trainer",
    "SparseHopfieldTrainer": "trainer",
    "SparseHopfieldTrainerMixin": "trainer",
    "SparsityLoggingCallback": "sparsity_logging",
    "last_whole_checkpoint": "resuming",
    "learned_parameter_names": "trainer",
}

__all__ = sorted(_MODULE_OF)

if TYPE_CHECKING:
    from .arguments import SparseHopfieldArguments
    from .resuming import last_whole_checkpoint
    from .schedules import SparseHopfieldScheduleCallback
    from .sparsity_logging import SparsityLoggingCallback
    from .trainer import (
        SparseHopfieldSeq2SeqTrainer,
        SparseHopfieldTrainer,
        SparseHopfieldTrainerMixin,
        learned_parameter_names,
    )


__getattr__, __dir__ = lazy_names(__name__, _MODULE_OF)
