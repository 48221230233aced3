# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Dropout of the pure PyTorch backend: the same in both passes, and right in the mean."""

import dataclasses

import pytest
import torch

from hf_sparse_hopfield.backends import blocked
from hf_sparse_hopfield.backends.blocked.dropout import Dropout

from ..cases import Case


@pytest.mark.parametrize("keys", [20, 200])
def test_gradient_sees_the_same_weights_dropped(keys):
    problem, leaves = Case(queries=5, keys=keys, head_dim=3, value_dim=2, alpha=1.5, sharpness=5.0).problem(
        torch.float64
    )

    def output(query, key, value):
        torch.manual_seed(3)
        return blocked.run(dataclasses.replace(problem, query=query, key=key, value=value, dropout=0.4)).output

    assert torch.autograd.gradcheck(output, tuple(leaves.values()), fast_mode=True)


@pytest.mark.parametrize("keys", [20, 200])
def test_mean_is_the_output(keys):
    problem, _ = Case(queries=4, keys=keys, alpha=1.5).problem(torch.float64, requires_grad=False)
    torch.manual_seed(0)
    dropped = dataclasses.replace(problem, dropout=0.5)
    mean = sum(blocked.run(dropped).output for _ in range(600)) / 600
    assert (mean - blocked.run(problem).output).abs().max() < 0.25


def test_extremes():
    problem, _ = Case(queries=4, keys=150).problem(torch.float32)
    assert not blocked.run(dataclasses.replace(problem, dropout=1.0)).output.any()
    outputs = [blocked.run(dataclasses.replace(problem, dropout=0.5)).output for _ in range(2)]
    assert not torch.equal(*outputs)


def test_factors():
    like = torch.ones(4000)
    factors = Dropout(0.25, seed=3).factors(like, block=1, piece=2)
    assert set(factors.unique().tolist()) == {0.0, torch.tensor(1 / 0.75).item()}
    assert abs((factors == 0).float().mean() - 0.25) < 0.05
    assert torch.equal(Dropout(0.25, seed=3).factors(like, block=1, piece=2), factors)
    for other in (Dropout(0.25, 4).factors(like, 1, 2), Dropout(0.25, 3).factors(like, 2, 2)):
        assert not torch.equal(other, factors)
    assert not Dropout(1.0, seed=3).factors(like, block=0).any()
