# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The compiled core against the definition: every instruction set, both of its ways, gradients and refusals."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_sparse_hopfield.backends import native, reference, select_backend
from hf_sparse_hopfield.functional import entmax

from ..cases import Case, cases, check, evaluate
from .problems import ERRORS, in_both, in_double, needs_core, patterns, problem_of


pytestmark = needs_core

# The core has no softcap; everything else is drawn.
SERVED = {"softcap": None}
LONG = {
    "softcap": None,
    "keys": st.integers(100, 700),
    "queries": st.integers(1, 70),
    "batch": 1,
    "kv_heads": st.integers(1, 2),
}


@pytest.fixture
def threads():
    """Set the number of threads; put back afterwards."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@in_both
@given(case=cases(**SERVED))
@settings(max_examples=60)
def test_short_rows(dtype, case):
    check(native.run, case, dtype)


@in_both
@given(case=cases(**LONG))
@settings(max_examples=25)
def test_long_rows(dtype, case):
    check(native.run, case, dtype)


@given(case=cases(**SERVED, beta=1.0), dtype=st.sampled_from([torch.bfloat16, torch.float16]))
@settings(max_examples=15)
def test_half_precision(case, dtype):
    check(native.run, case, dtype, tolerance=4e-2)


@pytest.mark.slow
@in_both
@given(case=cases(**SERVED))
@settings(max_examples=4000)
def test_short_rows_thoroughly(dtype, case):
    check(native.run, case, dtype)


@pytest.mark.slow
@in_both
@given(case=cases(**LONG, head_dim=st.integers(1, 256), value_dim=st.integers(1, 256)))
@settings(max_examples=1500)
def test_long_rows_thoroughly(dtype, case):
    # the core gets scores back from weights: for scores near zero, that rounds the gradients of shared beta and alpha
    check(native.run, case, dtype, tolerance=1e-3 if dtype == torch.float32 else None)


CORNERS = {
    "tiny": Case(),
    "sparse": Case(queries=90, keys=400, head_dim=64, value_dim=48, sharpness=4.0, kv_heads=2),
    "long": Case(queries=40, keys=2500, head_dim=32, value_dim=32, sharpness=3.0, alpha=1.5),
    "decode": Case(queries=1, keys=3000, head_dim=64, value_dim=64, groups=4, kv_heads=2, alpha="row", beta="row"),
    "flat": Case(queries=70, keys=300, head_dim=17, value_dim=33, sharpness=1e-3),
    "flat, general": Case(queries=70, keys=300, head_dim=17, value_dim=33, sharpness=0.3, alpha="row", beta="head"),
    "flat decode": Case(queries=3, keys=1500, groups=3, sharpness=1e-3, alpha=1.2, sinks=True),
    "many but not kept": Case(queries=40, keys=1200, head_dim=16, value_dim=16, sharpness=0.3, alpha=1.5),
    "close to one": Case(queries=40, keys=200, alpha=1.01, sharpness=1.0, sinks=True),
    "window": Case(queries=300, keys=340, is_causal=True, sliding_window=37, sharpness=4.0, kv_heads=2, groups=2),
    "more queries than keys": Case(queries=120, keys=50, is_causal=True),
    "everything": Case(
        batch=2,
        kv_heads=3,
        groups=2,
        queries=70,
        keys=500,
        head_dim=17,
        value_dim=33,
        alpha="row",
        beta="row",
        sharpness=1.0,
        sinks=True,
        is_causal=True,
        mask="full",
        bias="head",
        layout="transposed",
    ),
    "wide": Case(queries=40, keys=130, head_dim=256, value_dim=255, sharpness=2.0, layout="strided"),
}


@in_both
@pytest.mark.parametrize("name", CORNERS)
def test_every_instruction_set(level, name, dtype):
    check(native.run, CORNERS[name], dtype)


@pytest.mark.parametrize("sharpness", [0.01, 4.0, 40.0])
@pytest.mark.parametrize(
    "alpha", [1.0, 1 + 1e-12, 1 + 1e-7, 1 + 1e-5, 1.01, 1.1, 1.1 + 1e-9, 1.5 - 1e-9, 1.5, 1.75, 2 - 1e-9, 2.0]
)
def test_every_alpha_in_double(alpha, sharpness):
    """Each branch of the family, and the alphas closest to another branch: none is confused with its neighbour."""
    case = Case(
        queries=20, keys=300, groups=2, sharpness=sharpness, alpha="head", beta="head", bias="head", sinks=True
    )
    problem, leaves = case.problem(torch.float64)
    leaves["alpha"].data.fill_(alpha)
    actual, expected = (evaluate(run, problem, leaves) for run in (native.run, reference.run))
    for name, right in expected.items():
        torch.testing.assert_close(actual[name], right, atol=1e-12, rtol=1e-11)


def test_exact_to_float32():
    """As close to float64 as the definition in float32; the remaining error is the rounding of the scores."""
    query, key, value = patterns(1, 2, 256, 1024, 64)
    for alpha in (1.2, 1.37, 1.5, 2.0):
        problem = problem_of(query, key, value, alpha=alpha)
        exact = reference.run(in_double(problem)).output
        error = (native.run(problem).output - exact).abs()
        rounding = (reference.run(problem).output - exact).abs()
        assert error.max() <= max(1.3 * rounding.max(), 5e-6)
        assert error.mean() <= 1.1 * rounding.mean() + 1e-8


def test_131072_keys():
    query, key, value = patterns(1, 1, 2, 131072, 32, sharpness=2.0)
    for alpha in (1.5, 2.0):
        problem = problem_of(query, key, value, alpha=alpha)
        expected = reference.run(in_double(problem)).output
        torch.testing.assert_close(native.run(problem).output.double(), expected, atol=1e-5, rtol=0)


@in_both
@pytest.mark.parametrize("queries", [3, 40])
def test_nan_stays_in_its_row(queries, dtype):
    for poison in (torch.nan, torch.inf):
        query, key, value = patterns(2, 2, queries, 50, 16, requires_grad=True, dtype=dtype)
        with torch.no_grad():
            query[0, 1, 2, 3] = poison
        output = native.run(problem_of(query, key, value)).output
        bad = torch.zeros(2, 2, queries, dtype=torch.bool)
        bad[0, 1, 2] = True
        assert output[bad].isnan().all() and output[~bad].isfinite().all()
        output.sum().backward()
        assert query.grad[bad].isnan().all() and query.grad[~bad].isfinite().all()
        assert key.grad.isfinite().all() and value.grad.isfinite().all()


@pytest.mark.parametrize("queries", [2, 40])
def test_a_nan_key_can_be_masked(queries):
    query, key, value = patterns(1, 1, queries, 60, 8)
    key[..., 7, :] = torch.nan
    mask = torch.ones(1, 1, 1, 60, dtype=torch.bool)
    assert native.run(problem_of(query, key, value)).output.isnan().all()
    mask[..., 7] = False
    assert native.run(problem_of(query, key, value, mask=mask)).output.isfinite().all()


@in_both
@pytest.mark.parametrize("shape", [(0, 1, 3, 4, 8), (1, 2, 0, 4, 8), (1, 2, 3, 0, 8), (2, 2, 5, 5, 1)])
def test_nothing_there(shape, dtype):
    query, key, value = patterns(*shape, requires_grad=True, dtype=dtype)
    output = native.run(problem_of(query, key, value)).output
    assert output.shape == query.shape and output.dtype == dtype
    output.sum().backward()
    for tensor in (query, key, value):
        assert tensor.grad.shape == tensor.shape and tensor.grad.isfinite().all()


def test_repeatable_and_independent_of_threads(threads):
    query, key, value = patterns(1, 3, 200, 300, 32, sharpness=2.0, requires_grad=True)
    for alpha in (1.3, 2.0):
        results = []
        for count in (1, 2, 2, 3, 3):
            threads(count)
            output = native.run(problem_of(query, key, value, alpha=alpha)).output
            results.append([output, *torch.autograd.grad(output.sin().sum(), (query, key, value))])
        for first, second in ((1, 2), (3, 4)):
            assert all(torch.equal(a, b) for a, b in zip(results[first], results[second], strict=True))
        assert all(torch.equal(results[0][0], result[0]) for result in results)
        for one, three in zip(results[0], results[3], strict=True):
            torch.testing.assert_close(one, three, atol=1e-5, rtol=1e-5)


def test_a_row_does_not_depend_on_its_neighbours():
    query, key, value = patterns(1, 1, 100, 300, 16)
    whole = native.run(problem_of(query, key, value)).output
    part = native.run(problem_of(query[:, :, 37:90], key, value)).output
    assert torch.equal(whole[:, :, 37:90], part)


def test_concurrent_calls():
    inputs = [patterns(1, 2, 60 + 7 * i, 200, 16, sharpness=0.5 + i, requires_grad=True) for i in range(6)]

    def work(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        output = native.run(problem_of(*tensors, alpha=1.5)).output
        return [output, *torch.autograd.grad(output.sum(), tensors)]

    alone = [work(tensors) for tensors in inputs]
    with ThreadPoolExecutor(6) as pool:
        together = list(pool.map(work, inputs * 5))
    for i, result in enumerate(together):
        assert all(torch.equal(a, b) for a, b in zip(result, alone[i % 6], strict=True))


@in_both
@pytest.mark.parametrize("queries", [2, 40])
@pytest.mark.parametrize("sharpness", [1e-3, 4.0])
def test_dropout(queries, sharpness, dtype):
    keys, error = 90, ERRORS[dtype]
    query, key, _ = patterns(1, 2, queries, keys, 16, sharpness=sharpness, requires_grad=True, dtype=dtype)
    # values that show the weights themselves
    value = torch.eye(keys, dtype=dtype).expand(1, 2, keys, keys).contiguous().requires_grad_()
    problem = problem_of(query, key, value, alpha=1.5, dropout=0.4)
    torch.manual_seed(3)
    output = native.run(problem).output
    weights = entmax(query @ key.transpose(-1, -2) * 0.25, 1.5)
    kept = (output > 0).to(dtype) / 0.6
    torch.testing.assert_close(output, weights * kept, atol=error, rtol=10 * error)
    upstream = torch.randn_like(output)
    expected = torch.autograd.grad(weights * kept @ value, (query, key, value), upstream)
    torch.manual_seed(3)
    again = native.run(problem).output
    assert torch.equal(again, output)
    for got, right in zip(torch.autograd.grad(again, (query, key, value), upstream), expected, strict=True):
        torch.testing.assert_close(got, right, atol=2 * error, rtol=10 * error)
    assert not torch.equal(native.run(problem).output, output)
    if sharpness < 1 and queries > 2:
        rate = (output == 0).float().mean().item()
        assert abs(rate - 0.4) < 0.03
    gone = native.run(dataclasses.replace(problem, dropout=1.0)).output
    assert (gone == 0).all()


def test_multi_step_rows_stop_one_by_one():
    case = Case(queries=40, keys=60, steps=4, tolerance=1.0, sharpness=3.0, alpha=1.5)
    problem, leaves = case.problem(torch.float32)
    expected_problem, expected_leaves = case.problem(torch.float32, torch.float64)
    actual = evaluate(native.run, problem, leaves)
    expected = evaluate(reference.run, expected_problem, expected_leaves)
    for name, right in expected.items():
        torch.testing.assert_close(actual[name].double(), right, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"return_weights": True}, "weights"),
        ({"return_trace": True}, "trace"),
        ({"softcap": 3.0}, "softcap"),
        ({"alpha": 1.0}, "softmax"),
    ],
)
def test_refuses_with_a_reason(options, words):
    problem = problem_of(*patterns(1, 1, 3, 4, 8), **options)
    assert words in native.refusal(problem)
    with pytest.raises(ValueError, match="native"):
        select_backend(problem, "native")


def test_refuses_what_does_not_fit():
    assert native.refusal(problem_of(*patterns(1, 1, 3, 4, 8))) is None
    double = problem_of(*patterns(1, 1, 3, 4, 8, dtype=torch.float64))
    assert native.refusal(double) is None and select_backend(double)[0].name == "native"
    small = problem_of(*(t.to(torch.float8_e4m3fn) for t in patterns(1, 1, 3, 4, 8)))
    assert "float8" in native.refusal(small)
    elsewhere = problem_of(*(t.to("meta") for t in patterns(1, 1, 3, 4, 8)))
    assert "meta" in native.refusal(elsewhere)
    query, key, value = patterns(1, 1, 3, 1, 8)
    huge = problem_of(query, key.expand(1, 1, 2**31, 8), value.expand(1, 1, 2**31, 8))
    assert "32-bit" in native.refusal(huge)
