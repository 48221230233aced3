# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Problems for the tests of the compiled core."""

import dataclasses

import pytest
import torch

from hf_sparse_hopfield.backends import RetrievalProblem
from hf_sparse_hopfield.backends.native import library


needs_core = pytest.mark.skipif(library.missing is not None, reason=f"no compiled core: {library.missing}")

# The precisions of the core, and the errors that sums may have in them.
ERRORS = {torch.float32: 1e-5, torch.float64: 1e-13}
in_both = pytest.mark.parametrize("dtype", ERRORS, ids=str)


def patterns(
    *shape: int, sharpness: float = 1.0, requires_grad: bool = False, dtype: torch.dtype = torch.float32
) -> list[torch.Tensor]:
    batch, heads, queries, keys, width = shape
    query = torch.randn(batch, heads, queries, width, dtype=dtype) * sharpness
    key, value = torch.randn(2, batch, heads, keys, width, dtype=dtype).unbind()
    return [t.contiguous().requires_grad_(requires_grad) for t in (query, key, value)]


def problem_of(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **options) -> RetrievalProblem:
    return RetrievalProblem(query, key, value, scaling=query.shape[-1] ** -0.5, **options)


def in_double(problem: RetrievalProblem) -> RetrievalProblem:
    return dataclasses.replace(
        problem, query=problem.query.double(), key=problem.key.double(), value=problem.value.double()
    )
