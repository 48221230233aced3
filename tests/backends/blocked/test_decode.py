# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The shortcut for few queries on the CPU."""

import dataclasses
import warnings

import pytest
import torch

from hf_sparse_hopfield.backends import RetrievalProblem, blocked, reference
from hf_sparse_hopfield.backends.blocked import decode
from hf_sparse_hopfield.backends.blocked.support import group_maxima


def patterns(queries: int = 1, keys: int = 300) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((2, 6, queries, 16), (2, 3, keys, 16), (2, 3, keys, 24))
    return [torch.randn(shape, generator=generator) * 2 for shape in shapes]


@pytest.mark.parametrize("alpha", [2.0, 1.5, 1.3, 1.06])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("queries", "keys"), [(1, 128), (1, 1000), (3, 700), (1, 9000)])
def test_few_queries(queries, keys, dtype, alpha):
    query, key, value = (x.to(dtype) for x in patterns(queries, keys))
    query *= 4 / (alpha - 1)
    problem = RetrievalProblem(query, key, value, scaling=0.25, beta=1.5, alpha=alpha)
    assert decode.applies(problem)
    output = decode.read_out(problem, problem.query, key, value)
    assert output is not None
    doubled = RetrievalProblem(*(x.double() for x in (query, key, value)), scaling=0.25, beta=1.5, alpha=alpha)
    exact = reference.run(doubled).output
    # scores of some hundreds show their rounding, in the definition as well
    own = (reference.run(problem).output - exact).abs().max().item()
    torch.testing.assert_close(output.double(), exact, atol=4 * own + 1e-11, rtol=0)
    torch.testing.assert_close(blocked.run(problem).output, output)


@pytest.mark.parametrize("number", [torch.nan, torch.inf, -torch.inf])
def test_few_queries_that_are_not_finite(number):
    query, key, value = patterns()
    query[0, 2, 0, 3] = number
    problem = RetrievalProblem(query, key, value, scaling=0.25)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        output = blocked.run(problem).output
    torch.testing.assert_close(output, reference.run(problem).output, equal_nan=True)


@pytest.mark.parametrize("alpha", [2.0, 1.5, 1.2])
@pytest.mark.parametrize("sharpness", [1e-4, 1e-2])
def test_few_dense_rows(alpha, sharpness):
    query, key, value = patterns(keys=1000)
    problem = RetrievalProblem(query * sharpness, key, value, scaling=0.25, alpha=alpha)
    rows = (problem.query.view(2, 3, 2, 16) @ key.transpose(-1, -2) * 0.25).view(12, 1000)
    rows = torch.nn.functional.pad(rows, (0, 24), value=-torch.inf)
    assert decode.find_support(rows.numpy(), group_maxima(rows).numpy(), alpha - 1) is None
    output = decode.read_out(problem, problem.query, key, value)
    torch.testing.assert_close(output, reference.run(problem).output, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "options",
    [
        {"alpha": 1.01},
        {"alpha": torch.full((1, 1, 1, 1), 1.5)},
        {"mask": torch.ones(1, 1, 1, 300, dtype=torch.bool)},
        {"softcap": 1.0},
        {"sinks": torch.zeros(6)},
    ],
)
def test_applies_to_plain_problems_alone(options):
    problem = RetrievalProblem(*patterns(), scaling=0.25)
    assert decode.applies(problem)
    assert decode.applies(dataclasses.replace(problem, is_causal=True))
    assert not decode.applies(dataclasses.replace(problem, **options))
    assert not decode.applies(RetrievalProblem(*patterns(queries=2), scaling=0.25, is_causal=True))
