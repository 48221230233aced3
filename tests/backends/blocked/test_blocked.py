# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The pure PyTorch backend against the definition: both of its ways, all options, gradients, and how torch sees it."""

import dataclasses
import threading
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from hf_sparse_hopfield.backends import RetrievalProblem, blocked, reference, select_backend
from hf_sparse_hopfield.backends.blocked import blocks

from ..cases import Case, cases, check, evaluate


# Rows long enough for the sparse way, in shapes that keep the reference quick.
LONG = {"keys": st.integers(128, 300), "queries": st.integers(1, 40), "batch": st.integers(1, 2), "kv_heads": 2}
SHARP = st.sampled_from([0.5, 4.0, 20.0, 100.0])


@pytest.fixture
def small_blocks(monkeypatch):
    """Many blocks of few rows, as long sequences have them."""
    monkeypatch.setattr(blocks, "_BLOCK_ENTRIES", 1 << 13)
    monkeypatch.setattr(blocks, "_BLOCK_QUERIES", 16)
    monkeypatch.setattr(blocks, "_FULL_BLOCK_QUERIES", 16)
    monkeypatch.setattr(blocked, "_DENSE_ENTRIES", 1 << 11)


def is_sparse(problem: RetrievalProblem) -> torch.Tensor:
    """Which rows went the sparse way."""
    counts, original = [], blocked._forward_once

    def spy(*arguments):
        result = original(*arguments)
        counts.append(result[4] >= 0)
        return result

    with mock.patch.object(blocked, "_forward_once", spy):
        blocked.run(problem)
    return counts[-1]


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


@pytest.mark.parametrize(
    "options", [{}, {"alpha": "head", "beta": "row"}, {"bias": "full", "sinks": True, "softcap": 5.0}]
)
def test_short_rows_of_many_heads(options, monkeypatch):
    """A piece of a dense block has several heads, the last one fewer."""
    monkeypatch.setattr(blocked, "_DENSE_ENTRIES", 300)
    case = Case(batch=3, kv_heads=3, groups=2, queries=5, keys=7, sharpness=0.5, **options)
    assert [heads for heads, _ in blocked._pieces((9, 10, 7))] == [slice(0, 4), slice(4, 8), slice(8, 9)]
    check(blocked.run, case, torch.float64)


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


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@given(case=st.one_of(cases(), cases(**LONG), cases(**LONG, sharpness=SHARP)))
@settings(max_examples=2000, deadline=None)
def test_thousands_of_cases(dtype, case):
    check(blocked.run, case, dtype)


@pytest.mark.parametrize("length", [(1, 131072), (3, 5000), (300, 1030)])
@pytest.mark.parametrize("alpha", [1.5, 2.0])
def test_long_sequences(length, alpha):
    queries, keys = length
    case = Case(kv_heads=1, groups=2, queries=queries, keys=keys, head_dim=16, value_dim=4, alpha=alpha, sharpness=3.0)
    case = dataclasses.replace(case, is_causal=True)
    assert is_sparse(case.problem(torch.float32)[0]).all()
    check(blocked.run, case)


def test_refuses_more_than_its_indices_can_count():
    problem, _ = Case().problem(torch.float32)
    problem = dataclasses.replace(problem, query=torch.empty(2**16, 2**10, 2**6, 8, device="meta"))
    assert "32 bits" in blocked.refusal(problem)


@pytest.mark.parametrize("alpha", [1.0, 1.01, 1.2, 1.37, 1.5, 2.0, "head", "row"])
@pytest.mark.parametrize("sharpness", [1e-2, 15.0])
def test_every_alpha(alpha, sharpness):
    case = Case(kv_heads=2, groups=2, queries=6, keys=150, alpha=alpha, sharpness=sharpness, sinks=True, bias="head")
    check(blocked.run, case, torch.float64)


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


class TestDropout:
    @pytest.mark.parametrize("keys", [20, 200])
    def test_gradient_sees_the_same_weights_dropped(self, keys):
        problem, leaves = Case(queries=5, keys=keys, head_dim=3, value_dim=2, alpha=1.5, sharpness=5.0).problem(
            torch.float64
        )

        def output(query, key, value):
            torch.manual_seed(3)
            return blocked.run(dataclasses.replace(problem, query=query, key=key, value=value, dropout=0.4)).output

        assert torch.autograd.gradcheck(output, tuple(leaves.values()), fast_mode=True)

    @pytest.mark.parametrize("keys", [20, 200])
    def test_mean_is_the_output(self, keys):
        problem, _ = Case(queries=4, keys=keys, alpha=1.5).problem(torch.float64, requires_grad=False)
        torch.manual_seed(0)
        dropped = dataclasses.replace(problem, dropout=0.5)
        mean = sum(blocked.run(dropped).output for _ in range(600)) / 600
        assert (mean - blocked.run(problem).output).abs().max() < 0.25

    def test_extremes(self):
        problem, _ = Case(queries=4, keys=150).problem(torch.float32)
        assert not blocked.run(dataclasses.replace(problem, dropout=1.0)).output.any()
        outputs = [blocked.run(dataclasses.replace(problem, dropout=0.5)).output for _ in range(2)]
        assert not torch.equal(*outputs)


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
            assert "keeps no" in blocked.refusal(dataclasses.replace(problem, **{option: True}))
            assert select_backend(dataclasses.replace(problem, **{option: True}))[0].name == "reference"


class Largest(TorchDispatchMode):
    """Remembers the size of the largest tensor that any operator returns."""

    size = 0

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        result = function(*arguments, **(options or {}))
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided:
                self.size = max(self.size, tensor.numel())
        return result


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("sharpness", [1e-3, 20.0])
def test_no_square_tensor(sharpness):
    case = Case(kv_heads=2, queries=512, keys=512, head_dim=8, value_dim=8, sharpness=sharpness, is_causal=True)
    problem, _ = case.problem(torch.float32)
    settings_ = (problem.scaling, 1.0, None, None, 2.0, None, None, None, True, 0, 0.0, 0.0, None)
    tensors = [tensor.detach() for tensor in (problem.query, problem.key, problem.value)]
    with Largest() as largest, torch.no_grad():
        output, *support = blocked._forward_blocks(*tensors, *settings_, True)
        blocked._backward_blocks(torch.ones_like(output), *support, [True] * 3 + [False] * 4, *tensors, *settings_)
    assert largest.size < 512 * 512 // 4


class TestTorch:
    """What torch needs of an operator."""

    def problem(self, queries: int = 140, requires_grad: bool = True):
        case = Case(
            batch=2, kv_heads=2, groups=2, queries=queries, keys=queries, alpha="head", beta="head", sharpness=9.0
        )
        case = dataclasses.replace(case, bias="head", is_causal=True, steps=2, tolerance=0.1)
        return case.problem(torch.float32, requires_grad=requires_grad)

    def retrieve(self, query, key, value, alpha, beta, bias, dropout=0.0):
        return blocked.run(
            RetrievalProblem(
                query, key, value, 0.3, beta=beta, alpha=alpha, bias=bias, is_causal=True, steps=2, dropout=dropout
            )
        ).output

    def tensors(self, leaves):
        return [leaves[name] for name in ("query", "key", "value", "alpha", "beta", "bias")]

    def test_operator_check(self):
        problem, _ = Case(queries=5, keys=140, sharpness=9.0).problem(torch.float32)
        settings_ = (problem.scaling, 1.0, None, None, 1.5, None, None, None, True, 0, 0.0, 0.0, None)
        operator = torch.ops.hf_sparse_hopfield.blocked_forward.default
        torch.library.opcheck(operator, (problem.query, problem.key, problem.value, *settings_, True))

    @pytest.mark.parametrize("dynamic", [False, True])
    def test_compile(self, dynamic):
        torch._dynamo.reset()
        compiled = torch.compile(self.retrieve, fullgraph=True, dynamic=dynamic, backend="aot_eager")
        for queries in (140, 150) if dynamic else (140,):
            tensors = self.tensors(self.problem(queries)[1])
            expected, actual = self.retrieve(*tensors), compiled(*tensors)
            torch.testing.assert_close(actual, expected)
            gradients = (torch.autograd.grad(x.square().sum(), tensors) for x in (expected, actual))
            for right, got in zip(*gradients, strict=True):
                torch.testing.assert_close(got, right)

    def test_export(self):
        tensors = self.tensors(self.problem()[1])
        test = self

        class Module(torch.nn.Module):
            def forward(self, *tensors):
                return test.retrieve(*tensors)

        program = torch.export.export(Module(), tuple(tensors))
        torch.testing.assert_close(program.module()(*tensors), self.retrieve(*tensors))

    def test_checkpoint(self):
        tensors = self.tensors(self.problem()[1])
        gradients = []
        for wrap in (lambda f, *x: f(*x), lambda f, *x: checkpoint(f, *x, use_reentrant=False)):
            torch.manual_seed(0)
            output = wrap(lambda *x: self.retrieve(*x, dropout=0.3), *tensors)
            gradients.append(torch.autograd.grad(output.square().sum(), tensors))
        for right, got in zip(*gradients, strict=True):
            torch.testing.assert_close(got, right, rtol=0, atol=0)

    def test_autocast_leaves_scores_alone(self):
        tensors = self.tensors(self.problem()[1])
        expected = self.retrieve(*tensors)
        with torch.autocast("cpu", torch.bfloat16):
            output = self.retrieve(*tensors)
        torch.testing.assert_close(output, expected, rtol=0, atol=0)
        gradients = (torch.autograd.grad(x.sum(), tensors) for x in (expected, output))
        for right, got in zip(*gradients, strict=True):
            torch.testing.assert_close(got, right, rtol=0, atol=0)

    def test_only_asked_gradients(self):
        problem, leaves = Case(queries=20, keys=200, sharpness=9.0).problem(torch.float64)
        everything = evaluate(blocked.run, problem, leaves)
        for name in leaves:
            alone = {k: getattr(problem, k) if k == name else getattr(problem, k).detach() for k in leaves}
            result = evaluate(blocked.run, dataclasses.replace(problem, **alone), {name: leaves[name]})
            torch.testing.assert_close(result[name], everything[name])

    def test_deterministic_and_safe_in_threads(self):
        tensors = self.tensors(self.problem(requires_grad=False)[1])
        expected = self.retrieve(*tensors)
        results = []
        threads = [threading.Thread(target=lambda: results.append(self.retrieve(*tensors))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(results) == 4
        assert all(torch.equal(result, expected) for result in results)
