# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""alpha = 1 through torch's own attention."""

import dataclasses

import pytest
import torch
from hypothesis import assume, given, settings

from hf_sparse_hopfield.backends import dense, reference
from hf_sparse_hopfield.functional import explain_backend

from .cases import Case, cases, check, evaluate


DENSE = {"alpha": 1.0, "softcap": None, "sinks": False}


def compare(case, dtype):
    assume(dense.refusal(case.problem(dtype)[0]) is None)
    check(dense.run, case, dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@given(case=cases(**DENSE))
@settings(max_examples=40, deadline=None)
def test_equals_reference(dtype, case):
    compare(case, dtype)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@given(case=cases(**DENSE, max_length=100))
@settings(max_examples=2000, deadline=None)
def test_thousands_of_cases(dtype, case):
    compare(case, dtype)


@pytest.mark.parametrize("bias", [None, "full"])
def test_nothing_to_attend_to(bias):
    case = Case(queries=6, keys=5, alpha=1.0, mask="empty_rows", bias=bias)
    result = evaluate(dense.run, *case.problem(torch.float32))
    assert not result["output"][:, :, ::2].any()
    assert not result["query"][:, :, ::2].any()
    assert all(tensor.isfinite().all() for tensor in result.values())


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"alpha": 1.5}, "alpha"),
        ({"alpha": torch.ones(1, 1, 1, 1)}, "alpha"),
        ({"softcap": 2.0}, "softcap"),
        ({"sinks": torch.zeros(1)}, "sinks"),
        ({"return_weights": True}, "weights"),
        ({"return_trace": True}, "states"),
        ({"dropout": 1.0}, "drop"),
        ({"query": torch.zeros(1, 1, 0, 8)}, "nothing"),
    ],
)
def test_says_what_it_cannot_do(options, reason):
    problem, _ = Case(alpha=1.0).problem(torch.float32)
    assert dense.refusal(problem) is None
    assert reason in dense.refusal(dataclasses.replace(problem, **options))


def test_dropout_mean_is_the_output():
    problem, _ = Case(alpha=1.0).problem(torch.float64, requires_grad=False)
    torch.manual_seed(0)
    mean = sum(dense.run(dataclasses.replace(problem, dropout=0.5)).output for _ in range(600)) / 600
    assert (mean - dense.run(problem).output).abs().max() < 0.25


def test_memory_grows_with_the_length_only():
    problem, _ = Case(queries=1024, keys=1031, alpha=1.0, is_causal=True).problem(torch.float32)
    assert "mask of all queries and keys" in dense.refusal(problem)
    assert "forms all weights" in dense.refusal(dataclasses.replace(problem, is_causal=False, dropout=0.1))
    short, _ = Case(queries=40, keys=40, alpha=1.0).problem(torch.float32)
    assert explain_backend(short.query, short.key, short.value, alpha=1.0, dropout=0.1).startswith("dense")


@pytest.mark.parametrize("options", [{"steps": 3}, {"bias": "full"}, {"beta": "head"}, {}])
def test_float32_inside(options):
    problem, _ = Case(queries=20, keys=20, alpha=1.0, sharpness=3.0, **options).problem(torch.float32)
    expected = reference.run(problem).output
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(dense.run(problem).output, expected, rtol=1e-4, atol=1e-4)
    half, _ = Case(queries=20, keys=20, alpha=1.0, sharpness=3.0, **options).problem(torch.bfloat16)
    torch.testing.assert_close(dense.run(half).output, reference.run(half).output, rtol=1e-2, atol=1e-2)


def test_gradcheck():
    problem, leaves = Case(
        groups=2, queries=4, keys=5, head_dim=3, value_dim=2, alpha=1.0, beta="head", bias="head", steps=2
    ).problem(torch.float64)

    def output(*tensors):
        return dense.run(dataclasses.replace(problem, **dict(zip(leaves, tensors, strict=True)))).output

    assert torch.autograd.gradcheck(output, tuple(leaves.values()), fast_mode=True)


def test_compile():
    torch._dynamo.reset()
    problem, leaves = Case(queries=6, keys=9, alpha=1.0, is_causal=True, mask="padding").problem(torch.float32)

    def output(query, key, value):
        return dense.run(dataclasses.replace(problem, query=query, key=key, value=value)).output

    compiled = torch.compile(output, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*leaves.values()), output(*leaves.values()))
