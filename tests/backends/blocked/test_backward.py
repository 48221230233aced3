# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Gradients of the pure PyTorch backend."""

import dataclasses

import pytest
import torch

from hf_sparse_hopfield.backends import blocked, reference

from ..cases import Case, evaluate


@pytest.mark.parametrize("keys", [12, 140])
@pytest.mark.parametrize("alpha", [1.0, 2.0])
def test_tensor_alpha_at_the_ends(keys, alpha):
    problem, leaves = Case(queries=4, keys=keys, alpha="scalar", sharpness=10.0).problem(torch.float64)
    leaves["alpha"].data.fill_(alpha)
    actual, expected = (evaluate(run, problem, leaves) for run in (blocked.run, reference.run))
    for name in expected:
        torch.testing.assert_close(actual[name], expected[name], rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("keys", [9, 130])
def test_gradcheck(keys):
    case = Case(
        groups=2, queries=3, keys=keys, head_dim=3, value_dim=2, alpha="head", beta="row", bias="head", sinks=True
    )
    case = dataclasses.replace(case, sharpness=3.0, softcap=4.0, is_causal=True, steps=2)
    problem, leaves = case.problem(torch.float64)

    def output(*tensors):
        return blocked.run(dataclasses.replace(problem, **dict(zip(leaves, tensors, strict=True)))).output

    assert torch.autograd.gradcheck(output, tuple(leaves.values()), fast_mode=True, atol=1e-6)


def test_only_asked_gradients():
    problem, leaves = Case(queries=20, keys=200, sharpness=9.0).problem(torch.float64)
    everything = evaluate(blocked.run, problem, leaves)
    for name in leaves:
        alone = {k: getattr(problem, k) if k == name else getattr(problem, k).detach() for k in leaves}
        result = evaluate(blocked.run, dataclasses.replace(problem, **alone), {name: leaves[name]})
        torch.testing.assert_close(result[name], everything[name])
