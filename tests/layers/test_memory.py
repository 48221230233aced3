# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`HopfieldMemory`: retrieval, its trace, changing and saving the memory; `PolynomialMemory`."""

import copy
import os
import stat
import struct

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from hf_sparse_hopfield import HopfieldMemory, PolynomialMemory

from .formula import softmax, sparsemax


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


def test_save_and_load(tmp_path):
    path = tmp_path / "memory.safetensors"
    memory = HopfieldMemory(torch.randn(5, 4, dtype=torch.float16), alpha=1.3, beta=0.1 + 0.2, normalize=True)
    memory.save(path)
    again = HopfieldMemory.load(path)
    assert torch.equal(again.patterns, memory.patterns)
    assert again.patterns.dtype == torch.float16
    assert (again.alpha, again.beta, again.normalize) == (1.3, 0.1 + 0.2, True)
    memory.remove(0)
    memory.save(str(path))
    assert len(HopfieldMemory.load(str(path))) == 4
    assert os.listdir(tmp_path) == ["memory.safetensors"]
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask


def test_empty_memory_can_be_saved(tmp_path):
    HopfieldMemory(torch.empty(0, 3)).save(tmp_path / "empty")
    assert HopfieldMemory.load(tmp_path / "empty").patterns.shape == (0, 3)


def test_saving_is_atomic(tmp_path, monkeypatch):
    path = tmp_path / "memory.safetensors"
    HopfieldMemory(torch.ones(1, 2)).save(path)

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        HopfieldMemory(torch.zeros(3, 2)).save(path)
    monkeypatch.undo()
    assert os.listdir(tmp_path) == ["memory.safetensors"]
    assert torch.equal(HopfieldMemory.load(path).patterns, torch.ones(1, 2))


def metadata(**changes):
    values = {
        "format": "hf_sparse_hopfield.HopfieldMemory",
        "version": "1",
        "alpha": "2.0",
        "beta": "1.0",
        "normalize": "False",
    }
    return {name: value for name, value in {**values, **changes}.items() if value is not None}


@pytest.mark.parametrize(
    ("tensors", "header", "message"),
    [
        ({"patterns": torch.ones(2, 3)}, None, "is not a HopfieldMemory"),
        ({"patterns": torch.ones(2, 3)}, {"format": "pt"}, "is not a HopfieldMemory"),
        ({"patterns": torch.ones(2, 3)}, metadata(version="99"), "version '99'"),
        ({"patterns": torch.ones(2, 3)}, metadata(alpha=None), "damaged metadata"),
        ({"patterns": torch.ones(2, 3)}, metadata(beta="high"), "damaged metadata"),
        ({"patterns": torch.ones(2, 3)}, metadata(normalize="1"), "damaged metadata"),
        ({"patterns": torch.ones(2, 3)}, metadata(alpha="3.0"), "alpha"),
        ({"patterns": torch.ones(3)}, metadata(), "damaged: patterns must have shape"),
        ({"patterns": torch.ones(2, 3).long()}, metadata(), "damaged: patterns must be a floating"),
        ({"patterns": torch.full((2, 3), torch.nan)}, metadata(), "damaged: patterns must be finite"),
        ({"other": torch.ones(2, 3)}, metadata(), "damaged"),
    ],
)
def test_foreign_files_are_refused(tmp_path, tensors, header, message):
    save_file(tensors, tmp_path / "file", metadata=header)
    with pytest.raises(ValueError, match=message):
        HopfieldMemory.load(tmp_path / "file")


def test_damaged_files_are_refused(tmp_path):
    path = tmp_path / "memory.safetensors"
    HopfieldMemory(torch.randn(5, 4)).save(path)
    content = path.read_bytes()
    for damaged in (b"", content[:5], content[:-7], b"text, not tensors", struct.pack("<Q", 1 << 40) + content[8:]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="damaged or not a safetensors file"):
            HopfieldMemory.load(path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        HopfieldMemory.load(tmp_path / "nowhere")


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


@pytest.mark.parametrize(("order", "steps"), [(2, 1), (10, 1), (10, 3)])
def test_polynomial_equals_formula(order, steps):
    patterns, queries = torch.randn(7, 5, dtype=torch.float64), torch.randn(3, 2, 5, dtype=torch.float64)
    memory = PolynomialMemory(patterns, order=order)
    expected = queries
    for _ in range(steps):
        powers = torch.stack([(expected * pattern).sum(-1) ** order for pattern in patterns], -1)
        expected = torch.einsum("...m,md->...d", powers / powers.sum(-1, keepdim=True), patterns)
    torch.testing.assert_close(memory.retrieve(queries, steps=steps), expected)
    torch.testing.assert_close(memory(queries, steps), expected)
    # no temperature: a multiple of the query, of either sign, gives the same, and nothing overflows
    torch.testing.assert_close(memory.retrieve(-1e100 * queries, steps=steps), expected)


def test_polynomial_completes_damaged_patterns():
    patterns = torch.randn(50, 128, generator=torch.Generator().manual_seed(0)).sign()
    damaged = patterns.clone()
    damaged[:, 64:] = 0.0
    memory = PolynomialMemory(patterns)
    torch.testing.assert_close(memory.retrieve(damaged, steps=2), patterns, rtol=0, atol=1e-3)
    longer = patterns * torch.linspace(1, 3, 50)[:, None]
    torch.testing.assert_close(
        PolynomialMemory(longer, normalize=True).retrieve(damaged),
        PolynomialMemory(patterns / 128**0.5).retrieve(damaged),
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_polynomial_with_nothing_to_go_by_is_zero(dtype):
    memory = PolynomialMemory(torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]).to(dtype))
    found = memory.retrieve(torch.tensor([[0.0, 0.0, 1.0], [100.0, 1.0, 0.0]]).to(dtype), steps=2)
    assert found.dtype == dtype
    assert torch.equal(found, torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]).to(dtype))


def test_polynomial_is_filled_and_loaded():
    memory = PolynomialMemory(torch.empty(0, 3))
    with pytest.raises(ValueError, match="empty"):
        memory.retrieve(torch.randn(3))
    assert memory.add(torch.randn(4, 3)) == range(0, 4)
    memory.remove(1)
    other = PolynomialMemory(torch.empty(0, 3))
    other.load_state_dict(memory.state_dict())
    assert torch.equal(other.patterns, memory.patterns) and len(other) == 3
    assert "3 patterns, dimension=3, order=10" in repr(other)


def test_polynomial_refuses_bad_arguments():
    patterns = torch.randn(4, 3)
    for order in (3, 0, -2, 2.0, True, "10"):
        with pytest.raises(ValueError, match=f"order must be an even integer of at least 2.*got {order!r}"):
            PolynomialMemory(patterns, order=order)
    with pytest.raises(TypeError, match="normalize"):
        PolynomialMemory(patterns, normalize="yes")
    with pytest.raises(TypeError, match="int64"):
        PolynomialMemory(patterns.long())
    with pytest.raises(ValueError, match="finite"):
        PolynomialMemory(patterns / 0)
    memory = PolynomialMemory(patterns)
    for steps in (0, 1.0, True):
        with pytest.raises(ValueError, match=f"steps must be an integer of at least 1, got {steps!r}"):
            memory.retrieve(patterns, steps=steps)
    with pytest.raises(TypeError, match="dtype"):
        memory.retrieve(patterns.double())
    with pytest.raises(ValueError, match="shape"):
        memory.retrieve(torch.randn(2, 4))
