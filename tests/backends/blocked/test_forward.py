# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Which way the forward pass takes, and both ways in one call."""

import dataclasses
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_sparse_hopfield.backends import RetrievalProblem, blocked, reference
from hf_sparse_hopfield.backends.blocked import forward

from ..cases import Case, cases, check, evaluate


# Rows long enough for the sparse way, in shapes that keep the reference quick.
LONG = {"keys": st.integers(128, 300), "queries": st.integers(1, 40), "batch": st.integers(1, 2), "kv_heads": 2}
SHARP = st.sampled_from([0.5, 4.0, 20.0, 100.0])


def is_sparse(problem: RetrievalProblem) -> torch.Tensor:
    """Which rows went the sparse way."""
    counts, original = [], forward.forward_once

    def spy(*arguments):
        result = original(*arguments)
        counts.append(result[1].counts >= 0)
        return result

    with mock.patch.object(forward, "forward_once", spy):
        blocked.run(problem)
    return counts[-1]


@pytest.mark.usefixtures("small_blocks")
class TestManyBlocks:
    @given(case=cases(**LONG, sharpness=SHARP))
    @settings(max_examples=40, deadline=None)
    def test_long_rows(self, case):
        check(blocked.run, case, torch.float64)

    @given(case=cases(max_length=60))
    @settings(max_examples=30, deadline=None)
    def test_short_rows(self, case):
        check(blocked.run, case, torch.float64)

    def test_both_ways_in_one_call(self):
        case = Case(kv_heads=2, groups=2, queries=70, keys=300, alpha=1.5, sharpness=30.0, bias="full", sinks=True)
        problem, leaves = case.problem(torch.float64)
        flat = torch.ones_like(problem.query)
        flat[:, :2] = 1e-3

        def flattened(problem: RetrievalProblem) -> RetrievalProblem:
            return dataclasses.replace(problem, query=problem.query * flat, bias=problem.bias * flat[..., :1])

        ways = is_sparse(flattened(problem))
        assert ways[:, 2:].all()
        assert not ways[:, :2].any()
        actual, expected = (
            evaluate(lambda problem, run=run: run(flattened(problem)), problem, leaves)
            for run in (blocked.run, reference.run)
        )
        for name in expected:
            torch.testing.assert_close(actual[name], expected[name], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("length", [(1, 131072), (3, 5000), (300, 1030)])
@pytest.mark.parametrize("alpha", [1.5, 2.0])
def test_long_sequences(length, alpha):
    queries, keys = length
    case = Case(kv_heads=1, groups=2, queries=queries, keys=keys, head_dim=16, value_dim=4, alpha=alpha, sharpness=3.0)
    case = dataclasses.replace(case, is_causal=True)
    assert is_sparse(case.problem(torch.float32)[0]).all()
    check(blocked.run, case)
