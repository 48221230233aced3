# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The pure PyTorch backend against the definition: all options, edges and refusals."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_sparse_hopfield.backends import blocked, select_backend

from ..cases import Case, cases, check, evaluate


# Rows long enough for the sparse way, in shapes that keep the reference quick.
LONG = {"keys": st.integers(128, 300), "queries": st.integers(1, 40), "batch": st.integers(1, 2), "kv_heads": 2}
SHARP = st.sampled_from([0.5, 4.0, 20.0, 100.0])


@given(case=cases())
@settings(max_examples=60, deadline=None)
def test_short_rows(case):
    check(blocked.run, case, torch.float64)


@given(case=cases(**LONG))
@settings(max_examples=60, deadline=None)
def test_long_rows(case):
    check(blocked.run, case, torch.float64)


@given(case=cases(**LONG, sharpness=SHARP))
@settings(max_examples=40, deadline=None)
def test_float32(case):
    check(blocked.run, case)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@given(case=cases(**LONG, sharpness=SHARP, max_head_dim=8))
@settings(max_examples=15, deadline=None)
def test_half_precision(dtype, case):
    check(blocked.run, case, dtype)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@given(case=st.one_of(cases(), cases(**LONG), cases(**LONG, sharpness=SHARP)))
@settings(max_examples=2000, deadline=None)
def test_thousands_of_cases(dtype, case):
    check(blocked.run, case, dtype)


def test_refuses_more_than_its_indices_can_count():
    problem, _ = Case().problem(torch.float32)
    problem = dataclasses.replace(problem, query=torch.empty(2**16, 2**10, 2**6, 8, device="meta"))
    assert "32-bit" in blocked.refusal(problem)


@pytest.mark.parametrize("alpha", [1.0, 1.01, 1.2, 1.37, 1.5, 2.0, "head", "row"])
@pytest.mark.parametrize("sharpness", [1e-2, 15.0])
def test_every_alpha(alpha, sharpness):
    case = Case(kv_heads=2, groups=2, queries=6, keys=150, alpha=alpha, sharpness=sharpness, sinks=True, bias="head")
    check(blocked.run, case, torch.float64)


class TestEdges:
    @pytest.mark.parametrize("keys", [6, 150])
    @pytest.mark.parametrize("sharpness", [1e-3, 20.0])
    def test_nothing_to_attend_to(self, keys, sharpness):
        case = Case(queries=6, keys=keys, mask="empty_rows", sharpness=sharpness)
        result = evaluate(blocked.run, *case.problem(torch.float32))
        assert not result["output"][:, :, ::2].any()
        assert not result["query"][:, :, ::2].any()
        assert all(tensor.isfinite().all() for tensor in result.values())

    @pytest.mark.parametrize("keys", [6, 150, 600])
    @pytest.mark.parametrize("alpha", [1.2, 1.5, 2.0])
    @pytest.mark.parametrize("sharpness", [0.1, 1.0, 10.0])
    def test_nan_stays_in_its_row(self, keys, alpha, sharpness):
        case = Case(queries=5, keys=keys, alpha=alpha, sharpness=sharpness)
        problem, _ = case.problem(torch.float32, requires_grad=False)
        clean = blocked.run(problem).output
        problem.query[0, 0, 2] = torch.nan
        output = blocked.run(problem).output
        assert output[0, 0, 2].isnan().all()
        rest = [0, 1, 3, 4]
        torch.testing.assert_close(output[:, :, rest], clean[:, :, rest])

    def test_hidden_nan_does_no_harm(self):
        problem, _ = Case(queries=140, keys=140, is_causal=True).problem(torch.float32, requires_grad=False)
        clean = blocked.run(problem).output
        problem.key[0, 0, -1] = torch.nan
        torch.testing.assert_close(blocked.run(problem).output[:, :, :-1], clean[:, :, :-1])

    @pytest.mark.parametrize(("queries", "keys"), [(0, 5), (5, 0), (0, 0), (200, 3)])
    def test_no_length(self, queries, keys):
        check(blocked.run, Case(queries=queries, keys=keys, is_causal=True))

    def test_huge_scores(self):
        check(blocked.run, Case(queries=4, keys=200, sharpness=1e4, alpha=1.5), tolerance=1e-2)

    def test_refuses_what_it_does_not_keep(self):
        problem, _ = Case().problem(torch.float32)
        assert blocked.refusal(problem) is None
        for option in ("return_weights", "return_trace"):
            assert "does not return" in blocked.refusal(dataclasses.replace(problem, **{option: True}))
            assert select_backend(dataclasses.replace(problem, **{option: True}))[0].name == "reference"
