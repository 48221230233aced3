# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The bypass of torch's dispatcher: the same numbers, and not taken where operators are recorded."""

import warnings

import pytest
import torch
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

from hf_sparse_hopfield import retrieve
from hf_sparse_hopfield.backends.dispatcher_bypass import can_bypass_dispatcher
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
    """Records the names of the operators that run."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_dispatch_mode_sees_the_operators(backend):
    query, key, value = patterns()
    with Recorder() as recorder:
        seen = retrieve(query, key, value, backend=backend)
    assert any(f"hf_sparse_hopfield.{backend}_forward" in name for name in recorder.names)
    torch.testing.assert_close(seen, retrieve(query, key, value, backend=backend))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_trace_records_the_operators(backend):
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


def test_when_the_dispatcher_is_needed():
    plain = torch.ones(2)
    assert can_bypass_dispatcher(plain, None, 1.0)
    with forward_ad.dual_level():
        assert not can_bypass_dispatcher(forward_ad.make_dual(plain, plain))
    allowed = []
    torch.func.vmap(lambda x: allowed.append(can_bypass_dispatcher(x)) or x)(plain)
    assert allowed == [False]
    assert not can_bypass_dispatcher(torch.ones(2, requires_grad=True))
    with torch.no_grad():
        assert can_bypass_dispatcher(torch.ones(2, requires_grad=True))


def test_autocast_rounds_nothing():
    query, key, value = patterns()
    expected = retrieve(query, key, value, backend="blocked")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(retrieve(query, key, value, backend="blocked"), expected)
