# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""One of several processes, as `accelerate launch` and `torchrun` start them. Does not import torch before it is needed."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


# Those that accelerate looks at: of torchrun, and of three kinds of MPI.
_RANKS = ("RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK")


def is_main_process() -> bool:
    """Whether this process is the first of those that a launcher has started, or the only one."""
    return next((os.environ[name] for name in _RANKS if name in os.environ), "0") == "0"


@contextmanager
def others_wait() -> Iterator[bool]:
    """
    Let the main process do something alone. The others wait for it, and fail if it fails. Processes that were never connected do not
    wait.

    Yields:
        `bool`: Whether this is the main process.
    """
    from torch import distributed

    done = [False]
    try:
        yield is_main_process()
        done = [True]
    finally:
        if distributed.is_available() and distributed.is_initialized():
            distributed.broadcast_object_list(done)
    if not done[0]:
        raise RuntimeError("the main process failed: its error says why.")
