# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Gradients of the backends in float64 against differences of their own outputs."""

import dataclasses

import pytest
import torch

from hf_sparse_hopfield.backends import blocked, native

from .cases import Case


# Few queries and few keys, rows whose support is not kept for the backward pass, and several blocks of rows.
SHAPES = {
    "short": {"queries": 3, "keys": 9, "sharpness": 3.0},
    "flat": {"queries": 3, "keys": 130, "sharpness": 0.3},
    "blocks": {"queries": 35, "keys": 20, "sharpness": 3.0, "is_causal": True},
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("alpha", [1.2, 1.5, 1.75, 2.0])
@pytest.mark.parametrize("backend", [blocked, native], ids=["blocked", "native"])
def test_gradcheck(backend, alpha, shape):
    case = Case(groups=2, head_dim=3, value_dim=2, alpha="head", beta="row", bias="head", sinks=True, **SHAPES[shape])
    problem, leaves = case.problem(torch.float64)
    leaves["alpha"].data.fill_(alpha)
    refusal = backend.refusal(problem)
    if refusal:
        pytest.skip(refusal)

    def output(*tensors: torch.Tensor) -> torch.Tensor:
        return backend.run(dataclasses.replace(problem, **dict(zip(leaves, tensors, strict=True)))).output

    assert set(leaves) == {"query", "key", "value", "alpha", "beta", "bias", "sinks"}
    # a random direction for the larger ones, every number for the others
    assert torch.autograd.gradcheck(output, tuple(leaves.values()), atol=1e-7, rtol=1e-5, fast_mode=shape != "short")
