# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Context parallelism: each process has a part of the sequence, and attends to all of it."""

from typing import Any

import torch
from torch import Tensor

from ..backends.masks import canonical_mask
from ..backends.problem import RetrievalProblem
from ..retrieval import canonical
from .sharded_keys import Processes, retrieve_sharded


def retrieve_context_parallel(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    group: Any = None,
    positions: Tensor | None = None,
    scaling: float | None = None,
    beta: float | Tensor = 1.0,
    alpha: float | Tensor = 2.0,
    steps: int = 1,
    tolerance: float = 0.0,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    is_causal: bool = False,
    sliding_window: int | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    problem = canonical(
        RetrievalProblem(
            query, key, value, scaling, beta, alpha, steps, tolerance, None, None, is_causal, sliding_window, softcap, sinks
        )
    )
    processes = Processes(group)
    queries = sum(n for (n,) in processes.gather([query.shape[2]], query.device))
    if mask is not None or bias is not None:
        problem.mask, problem.bias = canonical_mask(mask, bias, (*query.shape[:2], queries, key.shape[2]))
    return retrieve_sharded(problem, processes, positions)
