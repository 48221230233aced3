# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Retrieval in several processes.

- `heads.py`: the heads that this process computes, and their alpha and beta
- `tensor.py`: tensor parallelism, where the weights of a process decide its heads
- `data.py`: data parallelism: FSDP2 must come after the conversion
- `context.py`: context parallelism, the sequence sharded over processes: for tensors, for a model, and under torch's and
  accelerate's own context
- `sharded_keys.py`: the computation behind it, exact by merging thresholds
- `sequence.py`: Ulysses sequence parallelism, which exchanges parts of the sequence for heads around attention
- `memory.py`: an associative memory of which each process has a part
- `processes.py`: the processes of a group, and what they tell each other
- `active.py`: the parallel attention that is active, which the attention function asks for

Names load on first use.
"""

from typing import TYPE_CHECKING

from ..lazy import lazy_names


_MODULE_OF = {
    "ShardedMemory": "memory",
    "context_parallel": "context",
    "retrieve_context_parallel": "context",
    "ulysses": "sequence",
}

__all__ = sorted(_MODULE_OF)

if TYPE_CHECKING:
    from .context import context_parallel, retrieve_context_parallel
    from .memory import ShardedMemory
    from .sequence import ulysses


__getattr__, __dir__ = lazy_names(__name__, _MODULE_OF)
