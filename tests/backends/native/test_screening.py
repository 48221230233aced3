# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Screening in the compiled core: the same results as without it, on every problem, instruction set and way of storing keys."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_sparse_hopfield import KeyScreen, retrieve
from hf_sparse_hopfield.backends import RetrievalProblem, RetrievalResult, native, reference
from hf_sparse_hopfield.backends.native import library

from ..cases import Case, cases, check
from ..test_key_screen import ADVERSARIAL
from .problems import in_double, needs_core, patterns, problem_of
from .test_native import CORNERS


pytestmark = needs_core

SERVED = {"softcap": None}
LONG = {
    "softcap": None,
    "keys": st.integers(250, 1500),
    "queries": st.integers(1, 70),
    "batch": 1,
    "kv_heads": st.integers(1, 2),
    "head_dim": st.integers(1, 80),
}


@contextmanager
def always() -> Iterator[None]:
    """Screen whether that pays or not."""
    library.screen_always(True)
    try:
        yield
    finally:
        library.screen_always(False)


def with_made_screen(problem: RetrievalProblem) -> RetrievalResult:
    with always():
        return native.run(problem)


def with_given_screen(problem: RetrievalProblem) -> RetrievalResult:
    with always():
        return native.run(dataclasses.replace(problem, screen=KeyScreen(problem.key)))


WAYS = {"made": with_made_screen, "given": with_given_screen}
both_ways = pytest.mark.parametrize("way", WAYS)


@both_ways
@given(case=cases(**SERVED))
@settings(max_examples=60)
def test_short_rows(way, case):
    check(WAYS[way], case)


@both_ways
@given(case=cases(**LONG))
@settings(max_examples=40)
def test_long_rows(way, case):
    check(WAYS[way], case)


@pytest.mark.slow
@both_ways
@given(case=cases(**SERVED))
@settings(max_examples=4000)
def test_short_rows_thoroughly(way, case):
    check(WAYS[way], case)


@pytest.mark.slow
@both_ways
@given(case=cases(**{**LONG, "keys": st.integers(250, 6000), "head_dim": st.integers(1, 300)}))
@settings(max_examples=1500)
def test_long_rows_thoroughly(way, case):
    check(WAYS[way], case, tolerance=1e-3)  # as in test_native.py


MORE_CORNERS = {
    "many keys, few queries": Case(queries=3, keys=20000, head_dim=8, value_dim=8, alpha=1.5, sharpness=6.0),
    "one head, many queries": Case(queries=70, keys=9000, head_dim=8, value_dim=8, sharpness=6.0),
    "decode of a causal window": Case(
        queries=4, keys=3000, head_dim=64, value_dim=64, groups=4, is_causal=True, sliding_window=700, sharpness=3.0
    ),
    "long list": Case(queries=40, keys=4000, head_dim=24, value_dim=8, alpha=1.25, sharpness=2.0),
    "padding": Case(batch=2, queries=1, keys=2000, head_dim=40, mask="padding", alpha="head", beta="head", groups=4),
}


@both_ways
@pytest.mark.parametrize("name", [*CORNERS, *MORE_CORNERS])
def test_every_instruction_set(level, name, way):
    check(WAYS[way], (CORNERS | MORE_CORNERS)[name])


@both_ways
@pytest.mark.parametrize("keys", [650, 700])
@pytest.mark.parametrize("seed", [0, 11, 27])
def test_blocks_of_which_some_rows_are_dense(level, seed, keys, way):
    """Rows of a block that take the ordinary way may see fewer keys than the last row of the block."""
    torch.manual_seed(seed)
    problem = problem_of(*patterns(1, 4, 33, keys, 17), alpha=1.3, is_causal=True)
    with library.counted_reads() as counts:
        output = WAYS[way](problem).output
    assert 0 < counts[3] < 4 * 33  # some
    torch.testing.assert_close(output.double(), reference.run(in_double(problem)).output, atol=1e-5, rtol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("way", ["made", "given", "never"])
@pytest.mark.parametrize("name", ["decode", "flat decode", "padding", "decode of a causal window"])
def test_half_precision_is_read_as_it_is(level, name, way, dtype):
    """Keys and values in half precision: the result is that of the same numbers in float64."""
    case = (CORNERS | MORE_CORNERS)[name]
    problem, _ = case.problem(dtype, requires_grad=False)
    expected = reference.run(case.problem(dtype, torch.float64, requires_grad=False)[0]).output
    if way == "never":
        problem = dataclasses.replace(problem, screen=False)
    output = WAYS.get(way, native.run)(problem).output
    assert output.dtype == dtype
    torch.testing.assert_close(output.double(), expected, atol=0.02 if dtype == torch.bfloat16 else 2e-3, rtol=0.01)


def test_half_precision_is_not_converted(monkeypatch):
    """Few queries read a half-precision cache in place, whatever its length."""
    query = torch.randn(1, 4, 1, 64).bfloat16()
    key, value = torch.randn(2, 1, 2, 3000, 64).bfloat16().unbind()
    seen = []
    original = library.call_forward
    monkeypatch.setattr(native.ops, "call_forward", lambda *args: (seen.append(args), original(*args))[1])
    retrieve(query, key, value)
    (_, used_key, used_value, *_), *_ = seen
    assert used_key is key and used_value is value


def sharp_decode(keys: int = 4096) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    query, key, value = patterns(1, 2, 1, keys, 64)
    return query * 4, key, value


def test_what_a_decode_reads():
    query, key, value = sharp_decode()
    with library.counted_reads() as counts:
        retrieve(query, key, value, screen=KeyScreen(key))
    screened, scored, read, ordinary = counts.tolist()
    assert screened == 2 * 4096 and ordinary == 0
    support = torch.count_nonzero(retrieve(query, key, value, return_weights=True)[1]).item()
    assert support <= read <= support + 2 and read <= scored <= 60
    with library.counted_reads() as counts:
        retrieve(query, key, value, screen=False)
    assert counts.tolist() == [0, 0, 0, 0]


def test_flat_rows_take_the_ordinary_way():
    query, key, value = patterns(1, 2, 1, 4096, 64, sharpness=1e-3)
    with library.counted_reads() as counts:
        screened = retrieve(query, key, value, screen=KeyScreen(key))
    # a group of each head is looked at, and no more
    assert counts[0] == 2 * 256 and counts[1] == counts[2] == 0 and counts[3] == 2
    assert torch.equal(screened, retrieve(query, key, value, screen=False))


def test_softmax_is_not_screened():
    query, key, value = sharp_decode(600)
    alpha = torch.tensor([1.0, 2.0])
    result = retrieve(query, key, value, alpha=alpha, screen=KeyScreen(key), backend="native")
    torch.testing.assert_close(
        result, retrieve(query, key, value, alpha=alpha, backend="reference"), atol=1e-5, rtol=0
    )


@pytest.mark.parametrize("queries", [1, 40])
@pytest.mark.parametrize("change", ["other", "scaled", "one entry"])
def test_the_screen_of_other_keys_is_an_error(change, queries):
    query, key, value = patterns(1, 1, queries, 3000, 64, sharpness=4)
    screen = KeyScreen(key)
    if change == "other":
        key = torch.randn_like(key)
    elif change == "scaled":
        key = key * 1.5
    else:  # the best key of a query
        key[0, 0, (query[0, 0] @ key[0, 0].T).argmax(-1)] += 1.0
    with always(), pytest.raises(ValueError, match="screen does not belong to key"):
        retrieve(query, key, value, screen=screen)


@both_ways
@pytest.mark.parametrize("queries", [1, 40])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf, 3e38, -3e38])
def test_numbers_that_are_not_finite_or_huge(bad, queries, way):
    """A visible one is seen as without a screen; a masked one does no harm."""
    query, key, value = patterns(1, 2, queries, 1500, 16, sharpness=4)
    key[0, 0, 700, 3] = bad
    mask = torch.ones(1, 1, 1, 1500, dtype=torch.bool)
    mask[..., 700] = False
    for seen in (None, mask):
        problem = problem_of(query, key, value, mask=seen)
        expected = native.run(dataclasses.replace(problem, screen=False)).output
        torch.testing.assert_close(WAYS[way](problem).output, expected, atol=2e-5, rtol=0, equal_nan=True)
    assert expected.isfinite().all()


@both_ways
@pytest.mark.parametrize("queries", [3, 70])
@pytest.mark.parametrize("name", ADVERSARIAL)
def test_rows_that_are_hard_to_bound(level, name, queries, way):
    """Ties, outliers, denormals, huge norms, equal keys: the results are those without a screen."""
    for seed, alpha in enumerate((2.0, 1.5, 1.1)):
        key, query = (tensor[None, None] for tensor in ADVERSARIAL[name](seed))
        value = torch.randn(1, 1, key.shape[2], 8)
        problem = RetrievalProblem(query[:, :, :queries], key, value, scaling=0.05, alpha=alpha)
        expected = reference.run(in_double(problem)).output
        # large scores are rounded, with a screen or without
        rounding = 4e-7 * 0.05 * query.norm(dim=-1).max().item() * key.norm(dim=-1).max().item()
        for output in (WAYS[way](problem).output, native.run(dataclasses.replace(problem, screen=False)).output):
            torch.testing.assert_close(output.double(), expected, atol=2e-5 + rounding, rtol=0)


@both_ways
@pytest.mark.parametrize("queries", [1, 40])
@pytest.mark.parametrize("scale", [1e-42, 1e-30, 1e-12, 1e12, 1e18])
def test_tiny_and_huge_scores(scale, queries, way):
    query, key, value = patterns(1, 1, queries, 900, 16)
    problem = problem_of(query, key * scale, value)
    expected = native.run(dataclasses.replace(problem, screen=False)).output
    torch.testing.assert_close(WAYS[way](problem).output, expected, atol=2e-5, rtol=0)


def test_screens_of_a_window_and_of_some_of_the_batch():
    query, key, value = patterns(3, 2, 1, 2000, 32, sharpness=3)
    screen = KeyScreen(key)
    chosen = torch.tensor([2, 0])
    screen = screen.select(chosen)
    screen.drop_first(777)
    screen.crop(1000)
    part = slice(777, 1777)
    query, key, value = query[chosen], key[chosen][:, :, part], value[chosen][:, :, part]
    with library.counted_reads() as counts:
        result = retrieve(query, key, value, screen=screen)
    assert counts[0] > 0 and counts[3] == 0
    torch.testing.assert_close(result, retrieve(query, key, value, screen=False), atol=1e-5, rtol=0)


def test_compiled_and_differentiated():
    """Gradients go through a screened call as through any other; so does torch.compile."""
    query, key, value = patterns(1, 2, 40, 3000, 64, sharpness=3, requires_grad=True)
    results = []
    for screen in (KeyScreen(key), False):
        with always():
            output = retrieve(query, key, value, screen=screen, alpha=1.5)
        results.append((output, *torch.autograd.grad(output.square().sum(), (query, key, value))))
    for actual, expected in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected, atol=2e-4, rtol=1e-4)
    compiled = torch.compile(retrieve, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(query, key, value, alpha=1.5), results[1][0], atol=2e-5, rtol=0)


def test_several_steps():
    query, key, value = sharp_decode(2000)
    options = {"steps": 3, "alpha": 1.5}
    screened = retrieve(query, key, value, screen=KeyScreen(key), **options)
    torch.testing.assert_close(screened, retrieve(query, key, value, screen=False, **options), atol=1e-5, rtol=0)


def test_the_number_of_threads_does_not_matter():
    query, key, value = patterns(1, 1, 5, 30000, 16, sharpness=8)
    screen, before, results = KeyScreen(key), torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3, 7):
            torch.set_num_threads(threads)
            results.append(retrieve(query, key, value, alpha=1.5, screen=screen))
    finally:
        torch.set_num_threads(before)
    for result in results[1:]:
        torch.testing.assert_close(result, results[0], atol=2e-6, rtol=0)
