# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`HopfieldMemory`: retrieval, its trace, search, changing the memory, state dicts."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from hf_sparse_hopfield import HopfieldMemory
from hf_sparse_hopfield.backends.native import library

from ..formula import softmax, sparsemax


def rows(function, scores):
    return torch.stack([function(row) for row in scores])


@pytest.mark.parametrize(("alpha", "normalizer"), [(1.0, softmax), (2.0, sparsemax)])
@pytest.mark.parametrize("steps", [1, 3])
def test_equals_formula(alpha, normalizer, steps):
    patterns = torch.randn(7, 5, dtype=torch.float64)
    queries = torch.randn(4, 5, dtype=torch.float64)
    memory = HopfieldMemory(patterns, alpha=alpha, beta=0.7)
    expected = queries
    for _ in range(steps):
        expected = rows(normalizer, 0.7 * expected @ patterns.T) @ patterns
    torch.testing.assert_close(memory.retrieve(queries, steps=steps), expected)
    torch.testing.assert_close(memory(queries, steps=steps), expected)


@given(
    size=st.integers(1, 8),
    dimension=st.integers(1, 6),
    leading=st.lists(st.integers(1, 3), max_size=3),
    steps=st.integers(1, 4),
    alpha=st.floats(1.0, 2.0),
    beta=st.floats(0.05, 10.0),
)
def test_trace(size, dimension, leading, steps, alpha, beta):
    memory = HopfieldMemory(torch.randn(size, dimension, dtype=torch.float64), alpha=alpha, beta=beta)
    queries = torch.randn(*leading, dimension, dtype=torch.float64)
    trace = memory.retrieve(queries, steps=steps, return_trace=True)
    assert trace.states.shape == (steps + 1, *leading, dimension)
    assert trace.energies.shape == (steps + 1, *leading)
    assert trace.weights.shape == (*leading, size)
    assert (trace.steps_used == steps).all()
    torch.testing.assert_close(trace.states[0], queries)
    torch.testing.assert_close(trace.states[-1], trace.output)
    torch.testing.assert_close(trace.output, memory.retrieve(queries, steps=steps))
    torch.testing.assert_close(trace.output, trace.weights @ memory.patterns)
    torch.testing.assert_close(trace.energies, memory.energy(trace.states))
    assert (trace.energies.diff(dim=0) <= 1e-9 * (1 + trace.energies[1:].abs())).all()
    for step in range(steps):
        torch.testing.assert_close(memory.retrieve(trace.states[step]), trace.states[step + 1])


def test_completes_damaged_patterns_exactly():
    generator = torch.Generator().manual_seed(0)
    patterns = torch.randn(50, 128, generator=generator).sign()
    memory = HopfieldMemory(patterns, beta=0.5)
    damaged = patterns.clone()
    damaged[:, 64:] = 0.0
    assert torch.equal(memory.retrieve(damaged), patterns)
    assert not torch.equal(HopfieldMemory(patterns, alpha=1.0, beta=0.1).retrieve(damaged), patterns)


def test_each_query_stops_by_itself():
    generator = torch.Generator().manual_seed(3)
    patterns = torch.randn(6, 4, generator=generator, dtype=torch.float64)
    queries = 3 * torch.randn(20, 4, generator=generator, dtype=torch.float64)
    memory = HopfieldMemory(patterns, alpha=1.0, beta=1.0)
    together = memory.retrieve(queries, steps=20, tolerance=0.05, return_trace=True)
    alone = torch.stack([memory.retrieve(query, steps=20, tolerance=0.05) for query in queries])
    torch.testing.assert_close(together.output, alone)
    assert together.steps_used.unique().numel() > 1
    assert (together.steps_used < 20).any()


def test_normalize():
    patterns = torch.randn(5, 4, dtype=torch.float64) * 7
    memory = HopfieldMemory(patterns, normalize=True, beta=50.0)
    unit = patterns / patterns.norm(dim=1, keepdim=True)
    torch.testing.assert_close(memory.patterns, unit)
    torch.testing.assert_close(memory.retrieve(1000 * patterns), memory.retrieve(patterns))
    soft = HopfieldMemory(patterns, normalize=True, alpha=1.0)  # not one-hot: the length of a query would show
    torch.testing.assert_close(soft.retrieve(1000 * patterns), soft.retrieve(patterns))
    torch.testing.assert_close(soft.retrieve(patterns), rows(softmax, unit @ unit.T) @ unit)
    torch.testing.assert_close(memory.retrieve(patterns), unit)
    memory.add(2 * patterns[:1])
    torch.testing.assert_close(memory.patterns[-1], unit[0])
    assert torch.isfinite(HopfieldMemory(torch.zeros(2, 3), normalize=True).retrieve(torch.zeros(3))).all()


def test_add_and_remove():
    patterns = torch.randn(4, 3)
    memory = HopfieldMemory(torch.empty(0, 3))
    assert memory.add(patterns) == range(0, 4)
    assert memory.add(patterns[0].double()) == range(4, 5)
    assert len(memory) == 5
    assert memory.patterns.dtype == torch.float32
    memory.remove([0, -1, 0])
    assert torch.equal(memory.patterns, patterns[1:])
    memory.remove(torch.tensor([False, True, False]))
    assert torch.equal(memory.patterns, patterns[[1, 3]])
    memory.remove(torch.tensor([1]))
    memory.remove(0)
    assert len(memory) == 0
    with pytest.raises(ValueError, match="empty"):
        memory.retrieve(torch.randn(3))


def test_stores_a_copy():
    patterns = torch.randn(4, 3)
    memory = HopfieldMemory(patterns)
    patterns.zero_()
    assert memory.patterns.abs().sum() > 0


def test_gradient_reaches_the_query():
    memory = HopfieldMemory(torch.randn(5, 4), alpha=1.5, beta=0.1)  # small: a one-hot retrieval has no gradient
    query = torch.randn(4, requires_grad=True)
    memory.retrieve(query, steps=2).sum().backward()
    assert query.grad.abs().sum() > 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_dtypes(dtype):
    memory = HopfieldMemory(torch.randn(5, 4).to(dtype), normalize=True)
    trace = memory.retrieve(torch.randn(2, 4).to(dtype), steps=2, return_trace=True)
    assert trace.output.dtype == dtype
    assert torch.isfinite(trace.energies).all()


def test_state_dict_and_deepcopy(tmp_path):
    memory = HopfieldMemory(torch.randn(5, 4), alpha=1.3, beta=0.1 + 0.2, normalize=True).half()
    holder, other = torch.nn.Sequential(memory), torch.nn.Sequential(HopfieldMemory(torch.randn(2, 4)).half())
    save_file(holder.state_dict(), tmp_path / "holder")
    for state in (holder.state_dict(), load_file(tmp_path / "holder")):
        other[0].alpha, other[0].beta, other[0].normalize = 2.0, 1.0, False
        other.load_state_dict(state)
        assert torch.equal(other[0].patterns, memory.patterns)
        assert (other[0].alpha, other[0].beta, other[0].normalize) == (1.3, 0.1 + 0.2, True)
    state = holder.state_dict()
    state["0._extra_state"] = torch.tensor([3.0, 1.0, 0.0])
    with pytest.raises(ValueError, match="alpha"):
        other.load_state_dict(state)
    del state["0._extra_state"]
    with pytest.raises(RuntimeError, match="Missing key.*_extra_state"):
        other.load_state_dict(state)
    other.load_state_dict(dict(state))  # as they were before they had the settings
    state._metadata["0"]["version"] = 1
    other.load_state_dict(state)
    assert other[0].alpha == 1.3
    with pytest.raises(RuntimeError, match="size mismatch"):
        HopfieldMemory(torch.randn(2, 3).half()).load_state_dict(memory.state_dict())
    twin = copy.deepcopy(memory)
    twin.add(torch.randn(4))
    assert (len(memory), len(twin)) == (5, 6)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"patterns": torch.ones(2, 3), "alpha": 2.5}, ValueError, "alpha"),
        ({"patterns": torch.ones(2, 3), "alpha": [2.0]}, TypeError, "alpha"),
        ({"patterns": torch.ones(2, 3), "beta": -1.0}, ValueError, "beta"),
        ({"patterns": torch.ones(2, 3), "normalize": "yes"}, TypeError, "normalize"),
        ({"patterns": torch.ones(2, 3).long()}, TypeError, "int64"),
        ({"patterns": [[1.0]]}, TypeError, "list"),
        ({"patterns": torch.ones(3)}, ValueError, "shape"),
        ({"patterns": torch.ones(3, 0)}, ValueError, "shape"),
        ({"patterns": torch.ones(2, 3), "backend": "quick"}, ValueError, "backend='quick' is unknown"),
        ({"patterns": torch.tensor([[1.0, torch.inf]])}, ValueError, "finite"),
    ],
)
def test_bad_arguments_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        HopfieldMemory(**arguments)


def test_bad_calls_are_refused():
    memory = HopfieldMemory(torch.randn(4, 3))
    with pytest.raises(ValueError, match="width 3"):
        memory.add(torch.randn(2, 4))
    for bad in (4, -5, [0, 7]):
        with pytest.raises(IndexError, match="holds 4 patterns"):
            memory.remove(bad)
    for bad in (1.0, torch.ones(1)):
        with pytest.raises(TypeError):
            memory.remove(bad)
    with pytest.raises(ValueError, match="boolean"):
        memory.remove(torch.ones(3, dtype=torch.bool))
    assert len(memory) == 4
    with pytest.raises(TypeError, match="dtype"):
        memory.retrieve(torch.randn(2, 3).double())
    with pytest.raises(TypeError, match="list"):
        memory.retrieve([1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="shape"):
        memory.retrieve(torch.randn(2, 4))
    with pytest.raises(ValueError, match="steps"):
        memory.retrieve(torch.randn(2, 3), steps=0)


# ---- many patterns ----


def large(patterns: int = 3000, width: int = 24, seed: int = 0, **settings) -> HopfieldMemory:
    stored = torch.randn(patterns, width, generator=torch.Generator().manual_seed(seed))
    return HopfieldMemory(stored, **{"beta": 2.0, **settings})


def queries_of(memory: HopfieldMemory, count: int = 5, noise: float = 0.5, seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    patterns = memory.patterns.float()
    chosen = patterns[torch.randint(len(patterns), (count,), generator=generator)]
    return (chosen + noise * torch.randn(chosen.shape, generator=generator)).to(memory.dtype)


def exact(memory: HopfieldMemory) -> HopfieldMemory:
    """The same patterns in float64."""
    return HopfieldMemory(memory.patterns.double(), memory.alpha, memory.beta, rows=memory.rows)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("alpha", [1.2, 1.5, 2.0])
@pytest.mark.parametrize(("beta", "count"), [(2.0, 40), (0.3, 40), (1e-3, 3), (2.0, 1)])
def test_search_equals_the_trace_in_double(alpha, beta, count, dtype):
    memory = large(alpha=alpha, beta=beta).to(dtype)
    queries = queries_of(memory, count)
    found = memory.search(queries, steps=2)
    trace = exact(memory).retrieve(queries.double(), steps=2, return_trace=True)
    tolerance = {torch.float32: 2e-5, torch.float64: 1e-10, torch.bfloat16: 2e-2, torch.float16: 3e-3}[dtype]
    torch.testing.assert_close(found.output.double(), trace.output, atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(found.energies.double(), trace.energies[:2], atol=1e-4, rtol=1e-5)
    weights = torch.zeros(count, len(memory) + 1, dtype=torch.float64)
    weights.scatter_(1, found.rows.where(found.rows >= 0, len(memory)), found.weights.double())
    torch.testing.assert_close(weights[:, :-1], trace.weights, atol=tolerance, rtol=0)
    assert ((found.rows >= 0) == (found.weights > 0)).all()
    assert (found.weights.diff(dim=-1) <= 0).all()


def test_shapes_of_a_search():
    memory = large()
    for leading in ((), (3,), (2, 0), (2, 3)):
        found = memory.search(torch.randn(*leading, 24), steps=3)
        assert found.rows.shape == found.weights.shape and found.rows.shape[:-1] == leading
        assert found.output.shape == (*leading, 24) and found.energies.shape == (3, *leading)


def test_energies_of_a_search_do_not_rise():
    memory = large(beta=0.5, alpha=1.5)
    found = memory.search(queries_of(memory, 50, noise=2.0), steps=6)
    assert (found.energies.diff(dim=0) <= 1e-4).all()
    torch.testing.assert_close(found.energies[0], memory.energy(queries_of(memory, 50, noise=2.0)))


def test_each_query_of_a_search_stops_by_itself():
    memory = large(300, 8, beta=0.4, alpha=1.5)
    queries = queries_of(memory, 30, noise=1.0)
    together = memory.search(queries, steps=12, tolerance=0.1)
    for number, query in enumerate(queries):
        alone = memory.search(query, steps=12, tolerance=0.1)
        torch.testing.assert_close(alone.output, together.output[number], atol=1e-5, rtol=1e-5)
    trace = exact(memory).retrieve(queries.double(), steps=12, tolerance=0.1, return_trace=True)
    torch.testing.assert_close(together.output.double(), trace.output, atol=1e-4, rtol=0)


@pytest.mark.parametrize("count", [1, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_removed_patterns_are_never_found(dtype, count):
    memory = large().to(dtype)
    queries = queries_of(memory, count, noise=0.1)
    before = memory.search(queries).rows[:, 0]
    memory.remove(rows=before)
    assert len(memory) == 3000 - len(before.unique()) and not torch.isin(memory.rows, before).any()
    found = memory.search(queries)
    assert not torch.isin(found.rows, before).any()
    expected = exact(memory).retrieve(queries.double())
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(found.output.double(), expected, atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(memory.retrieve(queries).double(), expected, atol=tolerance, rtol=tolerance)


def test_adding_and_removing_take_no_copy_of_all():
    memory = large(4096, 16)
    memory.search(torch.randn(16))
    moved = 0
    for _ in range(2000):
        before = memory._segments[0].patterns.data_ptr()
        memory.add(torch.randn(16))
        moved += memory._segments[0].patterns.data_ptr() != before
    assert moved <= 2
    before = memory._segments[0].patterns.data_ptr()
    memory.remove(range(500))
    assert memory._segments[0].patterns.data_ptr() == before and len(memory) == 5596
    memory.remove(range(4000))  # most of it: what is left moves together
    assert memory._segments[0].patterns.shape == (1596, 16)
    torch.testing.assert_close(memory.patterns, memory._segments[0].patterns)


def test_rows_stay_when_others_go():
    memory = HopfieldMemory(torch.eye(6) * 9, rows=torch.tensor([10, 20, 30, 40, 50, 60]))
    memory.remove([0, 2])
    assert memory.rows.tolist() == [20, 40, 50, 60]
    assert memory.search(torch.eye(6)[3]).rows.tolist() == [40]
    memory.add(torch.full((6,), -9.0))
    memory.add(torch.ones(2, 6), rows=torch.tensor([7, 7]))
    assert memory.rows.tolist() == [20, 40, 50, 60, 61, 7, 7]
    memory.remove(rows=[7, 40])
    assert memory.rows.tolist() == [20, 50, 60, 61]
    with pytest.raises(IndexError, match="rows contains 40"):
        memory.remove(rows=[50, 40])
    with pytest.raises(TypeError, match="either indices or rows"):
        memory.remove()
    with pytest.raises(TypeError, match=r"rows must be a torch.long tensor of shape \(1,\)"):
        memory.add(torch.ones(6), rows=torch.tensor([1.0]))
    with pytest.raises(ValueError, match="negative, got -1"):
        memory.add(torch.ones(6), rows=torch.tensor([-1]))


def test_the_copy_can_be_turned_off():
    with_copy, without = large(), large(screen=False)
    queries = queries_of(with_copy)
    torch.testing.assert_close(with_copy.search(queries).output, without.search(queries).output)
    torch.testing.assert_close(with_copy.retrieve(queries), without.retrieve(queries))
    assert without.screen_nbytes == 0
    if library.missing is None:
        assert 0 < with_copy.screen_nbytes < 0.4 * with_copy.patterns.nbytes


def test_gradients_reach_the_queries_of_a_search():
    memory = large(alpha=1.5, beta=0.3)
    queries = queries_of(memory, 3, noise=2.0).requires_grad_()
    gradient = torch.autograd.grad(memory.search(queries, steps=2).output.square().sum(), queries)[0]
    double = queries.detach().double().requires_grad_()
    expected = torch.autograd.grad(exact(memory).retrieve(double, steps=2).square().sum(), double)[0]
    torch.testing.assert_close(gradient.double(), expected, atol=1e-3, rtol=1e-3)


def test_a_share_has_its_part_of_the_patterns():
    memory = large(1001)
    memory.search(torch.randn(24))
    memory.remove(range(100, 150))
    shares = [memory.share(index, 4) for index in range(4)]
    assert torch.equal(torch.cat([share.patterns for share in shares]), memory.patterns)
    assert torch.equal(torch.cat([share.rows for share in shares]), memory.rows)
    for share in shares:
        queries = queries_of(share)
        expected = exact(share).retrieve(queries.double())
        torch.testing.assert_close(share.search(queries).output.double(), expected, atol=1e-5, rtol=1e-5)
    assert [len(large(2).share(index, 5)) for index in range(5)] == [0, 0, 1, 0, 1]
    with pytest.raises(ValueError, match="index must be between 0 and 1, got 2"):
        memory.share(2, 2)


def test_bad_searches_are_refused():
    with pytest.raises(ValueError, match="alpha=1.0 gives every pattern weight"):
        large(alpha=1.0).search(torch.randn(24))
    with pytest.raises(ValueError, match="queries must be finite"):
        large().search(torch.full((24,), torch.nan))
    with pytest.raises(ValueError, match="tolerance"):
        large().search(torch.randn(24), tolerance=-1.0)
    with pytest.raises(TypeError, match="screen"):
        large(screen=1)


def test_state_dicts_have_the_rows():
    memory = large(10)
    memory.remove([0, 4])
    other = HopfieldMemory(torch.empty(0, 24))
    other.load_state_dict(memory.state_dict())
    assert torch.equal(other.rows, memory.rows) and other.add(torch.randn(24)) == range(8, 9)
    state = memory.state_dict()
    del state["rows"]
    with pytest.raises(RuntimeError, match="Missing key.*rows"):
        other.load_state_dict(state)
    state._metadata[""]["version"] = 2
    other.load_state_dict(state)
    assert other.rows.tolist() == list(range(8))
