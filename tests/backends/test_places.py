# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Keys and values at places of a larger store."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hf_sparse_hopfield import retrieve
from hf_sparse_hopfield.backends import native
from hf_sparse_hopfield.backends.places import at_places

from .native.problems import needs_core


def store(rows: int, keys: int, batch: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Keys and values in the layout of a paged cache, and places in it."""
    pages = torch.randn(2, rows, 2, 8, dtype=dtype)
    key, value = (page.transpose(0, 1)[None] for page in pages)
    return [key, value, torch.stack([torch.randperm(rows)[:keys] for _ in range(batch)])]


def test_keys_are_brought_together():
    stored, places = torch.randn(3, 2, 7, 4), torch.tensor([[6, 0], [1, 1], [3, 5]])
    expected = torch.stack([stored[i][:, places[i]] for i in range(3)])
    assert at_places(stored, places).equal(expected)
    assert at_places(stored[:1], places).equal(torch.stack([stored[0][:, row] for row in places]))
    assert at_places(stored, places[:1]).equal(stored[:, :, [6, 0]])


@given(
    st.sampled_from(["native", "blocked", "reference", "auto"]),
    st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
    st.sampled_from([(1, 1), (3, 3), (3, 1)]),
    st.sampled_from([1, 40, 1500]),
    st.sampled_from([1, 3]),
    st.sampled_from([0.01, 3.0]),
    st.sampled_from([1.2, 1.5, 2.0]),
    st.booleans(),
    st.integers(0, 10**6),
)
def test_equals_keys_that_lie_together(backend, dtype, batches, keys, queries, sharpness, alpha, masked, seed):
    if backend == "native" and native.library.missing is not None:
        return
    torch.manual_seed(seed)
    batch, places_batch = batches
    key, value, places = store(1600, keys, places_batch, dtype)
    query = (torch.randn(batch, 6, queries, 8) * sharpness).to(dtype)
    mask = torch.rand(batch, 1, 1, keys) > 0.2 if masked else None
    options = {"alpha": alpha, "mask": mask, "is_causal": not masked}
    together = [at_places(stored, places).expand(batch, -1, -1, -1) for stored in (key, value)]
    expected = retrieve(query.double(), *(t.double() for t in together), backend="reference", **options)
    output = retrieve(query, key, value, places=places, backend=backend, **options)
    assert output.dtype == dtype
    assert torch.allclose(output.double(), expected, atol=3e-2 if dtype == torch.bfloat16 else 1e-5)


@needs_core
def test_the_core_reads_single_queries_in_place(monkeypatch):
    monkeypatch.setattr(native, "at_places", lambda *_: pytest.fail("the keys were copied"))
    key, value, places = store(100, 60, 2)
    with torch.no_grad():
        retrieve(torch.randn(2, 6, 1, 8), key, value, places=places)


@needs_core
def test_a_masked_key_may_be_nan():
    key, value, places = store(100, 60, 1)
    key[0, :, places[0, 5]] = torch.nan
    mask = torch.ones(1, 1, 1, 60, dtype=torch.bool)
    mask[..., 5] = False
    assert retrieve(torch.randn(1, 6, 1, 8), key, value, places=places, mask=mask).isfinite().all()


def test_gradients_reach_the_store():
    key, value, places = store(30, 12, 2, torch.float64)
    key, value = key.contiguous().requires_grad_(), value.contiguous().requires_grad_()
    query = torch.randn(2, 4, 1, 8, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda *t: retrieve(*t, alpha=1.5, places=places), (query, key, value))


@pytest.mark.parametrize(
    "places, message",
    [
        ([[0, 1]], "places must be a torch.long tensor .*, got list"),
        (torch.zeros(1, 3), "places must be a torch.long tensor .*torch.float32"),
        (torch.zeros(3, dtype=torch.long), "places must be a torch.long tensor"),
        (torch.zeros(3, 2, dtype=torch.long), "must have a batch of 1 or 2"),
        (torch.tensor([[0, 10]]), "rows of key, from 0 to 9, got 0 to 10"),
        (torch.tensor([[-1, 1]]), "rows of key, from 0 to 9, got -1 to 1"),
    ],
)
def test_wrong_places(places, message):
    key, value, _ = store(10, 1, 1)
    with pytest.raises((TypeError, ValueError), match=message):
        retrieve(torch.randn(2, 4, 1, 8), key, value, places=places)
