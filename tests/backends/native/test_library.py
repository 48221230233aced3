# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The calls of the compiled core, and what happens without it."""

import logging

import pytest
import torch

from hf_sparse_hopfield.backends import native, reference, select_backend
from hf_sparse_hopfield.backends.native import library
from hf_sparse_hopfield.backends.native.settings import Settings

from .problems import ERRORS, in_both, in_double, needs_core, patterns, problem_of


pytestmark = needs_core


def test_really_uses_threads():
    assert library._core.hopfield_threads(2) == 2


@in_both
@pytest.mark.parametrize("kept", [5, 64])
@pytest.mark.parametrize("queries", [2, 50])
@pytest.mark.parametrize("sharpness", [1e-3, 3.0])
def test_writes_only_where_it_should(queries, sharpness, kept, dtype, monkeypatch):
    monkeypatch.setattr(library, "_KEPT_PER_ROW", kept)
    margin, keys, width, value_dim = 64, 77, 13, 11
    guards = []

    def guarded(*shape: int) -> torch.Tensor:
        count = torch.Size(shape).numel()
        memory = torch.full((count + 2 * margin,), 12345.0, dtype=dtype)
        guards.append(memory)
        return memory[margin : margin + count].view(shape)

    query, key, value, upstream = (
        guarded(1, 2, n, d).normal_()
        for n, d in ((queries, width), (keys, width), (keys, value_dim), (queries, value_dim))
    )
    query *= sharpness
    blocks = -(-queries // library.BLOCK_ROWS) * 2
    states = guarded(2 * queries, library.ROW_STATE)
    support = guarded(blocks, library.BLOCK_ROWS * 2 * library.kept_per_row(keys))
    problem = (query, key, value, Settings(*(None,) * 6, width**-0.5, 1.0, 2.0, False, 0, 0.0))
    output = guarded(1, 2, queries, value_dim)
    library.call_forward(*problem, output, states, support)
    gradients = (guarded(*query.shape), guarded(*key.shape), guarded(*value.shape))
    of_alpha = guarded(2 * queries)
    tensors = library.BackwardTensors(states, support, upstream, *gradients, None, of_alpha, None, None)
    library.call_backward(*problem, tensors)
    for memory in guards:
        assert (memory[:margin] == 12345.0).all() and (memory[-margin:] == 12345.0).all()
    expected = reference.run(in_double(problem_of(query, key, value))).output
    torch.testing.assert_close(output.double(), expected, atol=ERRORS[dtype], rtol=0)


def test_without_a_core(monkeypatch, caplog, tmp_path):
    broken = tmp_path / "_core.so"
    broken.write_text("not a library")
    monkeypatch.setenv("HF_SPARSE_HOPFIELD_CORE", str(broken))
    with caplog.at_level(logging.WARNING):
        core, reason = library.find()
    assert core is None and "_core.so cannot be loaded" in reason
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    monkeypatch.setattr(library, "missing", reason)
    problem = problem_of(*patterns(1, 1, 3, 4, 8))
    assert "the compiled core is not built" in native.refusal(problem)
    chosen, why = select_backend(problem)
    assert chosen.name != "native" and "native: the compiled core is not built" in why


def test_a_source_tree_says_how_to_build_the_core(monkeypatch, tmp_path):
    folder = tmp_path / "hf_sparse_hopfield" / "backends" / "native"
    folder.mkdir(parents=True)
    monkeypatch.delenv("HF_SPARSE_HOPFIELD_CORE", raising=False)
    monkeypatch.setattr(library, "__file__", str(folder / "library.py"))
    assert library.find() == (None, "no C++ compiler could build it when the package was installed")
    (folder / "source").mkdir()
    core, reason = library.find()
    assert core is None and f"`pip install -e {tmp_path}` builds it" in reason and "no C++ compiler" not in reason
