# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The short way past torch's dispatcher: the same numbers, and not taken where somebody looks at operators."""

import warnings

import pytest
import torch
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

from hf_sparse_hopfield import retrieve
from hf_sparse_hopfield.backends import RetrievalProblem, blocked, reference
from hf_sparse_hopfield.backends.blocked import blocks
from hf_sparse_hopfield.backends.blocked import decode as few
from hf_sparse_hopfield.backends.dispatch import can_bypass_dispatcher
from hf_sparse_hopfield.backends.native import library


BACKENDS = [
    pytest.param("native", marks=pytest.mark.skipif(library.missing is not None, reason="no compiled core")),
    "blocked",
]


def patterns(queries: int = 1, keys: int = 300) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((2, 6, queries, 16), (2, 3, keys, 16), (2, 3, keys, 24))
    return [torch.randn(shape, generator=generator) * 2 for shape in shapes]


class Recorder(TorchDispatchMode):
    """Writes down the names of the operators that run."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("backend", BACKENDS)
def test_operators_are_seen_by_those_who_look(backend):
    query, key, value = patterns()
    with Recorder() as recorder:
        seen = retrieve(query, key, value, backend=backend)
    assert any(f"hf_sparse_hopfield.{backend}_forward" in name for name in recorder.names)
    torch.testing.assert_close(seen, retrieve(query, key, value, backend=backend))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_trace_computes_and_remembers_nothing(backend):
    query, key, value = patterns()

    def work(query):
        return retrieve(query, key, value, backend=backend)

    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(work, (query,), check_trace=False)
        torch.testing.assert_close(traced(3 * query), work(3 * query))


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_are_kept(backend):
    query, key, value = patterns()
    value.requires_grad_()
    assert retrieve(query, key, value, backend=backend).requires_grad
    with torch.no_grad():
        assert not retrieve(query, key, value, backend=backend).requires_grad


def test_what_is_not_direct():
    plain = torch.ones(2)
    assert can_bypass_dispatcher(plain, None, 1.0)
    with forward_ad.dual_level():
        assert not can_bypass_dispatcher(forward_ad.make_dual(plain, plain))
    directness = []
    torch.func.vmap(lambda x: directness.append(can_bypass_dispatcher(x)) or x)(plain)
    assert directness == [False]
    assert not can_bypass_dispatcher(torch.ones(2, requires_grad=True))
    with torch.no_grad():
        assert can_bypass_dispatcher(torch.ones(2, requires_grad=True))


@pytest.mark.parametrize("alpha", [2.0, 1.5, 1.3, 1.06])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("queries", "keys"), [(1, 128), (1, 1000), (3, 700), (1, 9000)])
def test_few_queries(queries, keys, dtype, alpha):
    query, key, value = (x.to(dtype) for x in patterns(queries, keys))
    query *= 4 / (alpha - 1)
    problem = RetrievalProblem(query, key, value, scaling=0.25, beta=1.5, alpha=alpha)
    assert few.is_few(problem)
    output = few.read_few(problem, problem.query, key, value)
    assert output is not None
    doubled = RetrievalProblem(*(x.double() for x in (query, key, value)), scaling=0.25, beta=1.5, alpha=alpha)
    exact = reference.run(doubled).output
    # scores of some hundreds have roundings that show, also in the definition
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
    assert few.solve_few(rows.numpy(), blocks.group_maxima(rows).numpy(), alpha - 1) is None
    output = few.read_few(problem, problem.query, key, value)
    torch.testing.assert_close(output, reference.run(problem).output, atol=1e-5, rtol=0)


def test_autocast_rounds_nothing():
    query, key, value = patterns()
    expected = retrieve(query, key, value, backend="blocked")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(retrieve(query, key, value, backend="blocked"), expected)
