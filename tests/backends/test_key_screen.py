# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The int8 copy of keys: its bounds hold, its candidates contain the support, and it grows, shrinks and moves."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_sparse_hopfield import KeyScreen, retrieve
from hf_sparse_hopfield.backends import RetrievalProblem, reference
from hf_sparse_hopfield.backends.key_screen import candidates
from hf_sparse_hopfield.backends.native import library

from .cases import cases


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# Rows that are hard to bound: each gives keys (keys, width) and queries (rows, width) for a seed.
def _gaussian(seed):
    return normal(400, 32, seed=seed), normal(1250, 32, seed=seed + 1) * 3


def _outlier_channels(seed):
    key, query = _gaussian(seed)
    key[:, ::11] *= 300
    query[:, 5::11] *= 100
    return key, query


def _ties_at_the_threshold(seed):
    key = normal(400, 32, seed=seed).round()  # integers: many equal scores, exactly representable
    return key, normal(1250, 32, seed=seed + 1).round() / 4


def _denormals(seed):
    key, query = _gaussian(seed)
    key[::3] *= 1e-40
    key[1::3, 4:] *= 1e-41
    return key, query


def _huge_norms(seed):
    key, query = _gaussian(seed)
    return key * 10.0 ** normal(400, 1, seed=seed + 2).mul(4).clamp(-10, 10), query * 1e3


def _all_equal(seed):
    return normal(1, 32, seed=seed).expand(400, 32).clone(), normal(1250, 32, seed=seed + 1)


def _one_huge_key(seed):
    key, query = _gaussian(seed)
    key[seed % 400] *= 1e6
    return key, query


def _aligned(seed):
    key = normal(400, 32, seed=seed)
    return key, key[torch.randint(400, (1250,), generator=torch.Generator().manual_seed(seed))] * 2 + 0.1


def _one_hot(seed):
    return torch.eye(32).repeat(13, 1)[:400] * 3, normal(1250, 32, seed=seed).sign()


ADVERSARIAL = {
    function.__name__.strip("_"): function
    for function in (
        _gaussian,
        _outlier_channels,
        _ties_at_the_threshold,
        _denormals,
        _huge_norms,
        _all_equal,
        _one_huge_key,
        _aligned,
        _one_hot,
    )
}


@pytest.mark.parametrize("query_bits", [8, 16])
@pytest.mark.parametrize("name", ADVERSARIAL)
def test_candidates_contain_the_support(name, query_bits):
    """9 kinds of rows x 1250 rows x 9 seeds in 8 bits, and x 3 in 16: 135,000 rows."""
    for seed in range(9 if query_bits == 8 else 3):
        key, query = ADVERSARIAL[name](seed)
        key, query = key[None, None], query[None, None]
        screen = KeyScreen(key)
        lower, upper = screen.score_bounds(query, query_bits)
        scores = query.double() @ key.double().mT
        assert ((lower <= scores) & (scores <= upper)).all()
        alpha = (1.05, 1.25, 1.5, 1.75, 2.0, 2.0)[seed % 6]
        problem = RetrievalProblem(query, key, key, scaling=(0.05, 1.0)[seed % 2], alpha=alpha)
        double = dataclasses.replace(problem, query=query.double(), key=key.double(), value=key.double())
        weights = reference.run(dataclasses.replace(double, return_weights=True)).weights
        assert not ((weights > 0) & ~candidates(problem, screen, query_bits)).any()


@given(case=cases(keys=st.integers(1, 40)))
@settings(max_examples=150)
def test_candidates_of_any_problem(case):
    """Masks, bias, softcap, sinks, windows, per-row alpha and beta."""
    problem, _ = case.problem(torch.float32, requires_grad=False)
    double, _ = case.problem(torch.float32, torch.float64, requires_grad=False)
    one_step = dataclasses.replace(double, steps=1, return_weights=True)
    weights = reference.run(one_step).weights
    found = candidates(problem, KeyScreen(problem.key))
    assert not ((weights > 0) & ~found).any()


def test_candidates_are_few_on_random_keys():
    key, query = normal(1, 1, 16384, 64), normal(1, 1, 16, 64, seed=1)
    problem = RetrievalProblem(query, key, key, scaling=1.0)
    for bits, most in ((8, 0.004), (16, 0.002)):
        assert candidates(problem, KeyScreen(key), bits).float().mean() < most


@pytest.mark.skipif(library.missing is not None, reason=f"no compiled core: {library.missing}")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", [*ADVERSARIAL, "not finite"])
def test_core_and_pytorch_make_the_same_copy(name, dtype, monkeypatch):
    key = ADVERSARIAL.get(name, _gaussian)(3)[0][None, None].to(dtype)
    if name == "not finite":
        key[0, 0, ::50, 3] = torch.nan
        key[0, 0, 1::50, 3] = torch.inf
        key[0, 0, 2::50, 3] = -torch.finfo(dtype).max
    by_core = KeyScreen(key)
    monkeypatch.setattr(library, "missing", "not here")
    by_torch = KeyScreen(key)
    assert torch.equal(by_core.scales[:, :, :400], by_torch.scales[:, :, :400])
    core, pytorch = (screen._keys() for screen in (by_core, by_torch))
    # a quotient on the border between two codes may go either way
    assert (core[0] - pytorch[0]).abs().max() <= 1 and (core[0] != pytorch[0]).float().mean() < 1e-2
    for a, b in zip(core[1:], pytorch[1:], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("pieces", [[1] * 40, [256, 1, 255, 3], [700, 0, 13], [5, 1000]])
def test_append(pieces):
    key = normal(2, 3, sum(pieces), 20)
    whole, start = KeyScreen(key), pieces[0]
    grown = KeyScreen(key[:, :, :start])
    for piece in pieces[1:]:
        grown.append(key[:, :, start : start + piece])
        start += piece
    assert len(grown) == len(whole) == sum(pieces) and grown.shape == key.shape
    for a, b in zip(grown._keys(), whole._keys(), strict=True):
        assert torch.equal(a, b)


def test_growth_is_rare():
    """Appending one key at a time moves what is there only now and then."""
    screen = KeyScreen(normal(1, 1, 1, 8))
    moved, before = 0, screen.codes.data_ptr()
    for _ in range(3000):
        screen.append(normal(1, 1, 1, 8))
        moved += screen.codes.data_ptr() != before
        before = screen.codes.data_ptr()
    assert moved < 12 and screen.scales.shape[2] < 1.6 * 3001


def test_select_crop_and_drop():
    key, query = normal(3, 2, 900, 16), normal(2, 4, 1, 16, seed=1) * 3
    screen = KeyScreen(key)
    chosen = screen.select(torch.tensor([2, 2]))
    assert len(screen) == 900 and chosen.shape == (2, 2, 900, 16)
    chosen.drop_first(300)
    chosen.crop(500)
    part = key[[2, 2]][:, :, 300:800]
    lower, upper = chosen.score_bounds(query)
    scores = query.double() @ part.double().repeat_interleave(2, 1).mT
    assert lower.shape == scores.shape and ((lower <= scores) & (scores <= upper)).all()
    chosen.append(key[[2, 2]][:, :, 800:])
    assert len(chosen) == 600
    output = retrieve(query, key[[2, 2]][:, :, 300:], key[[2, 2]][:, :, 300:], screen=chosen)
    expected = retrieve(query, key[[2, 2]][:, :, 300:], key[[2, 2]][:, :, 300:], backend="reference")
    torch.testing.assert_close(output, expected, atol=1e-5, rtol=0)


def test_memory():
    key = normal(1, 8, 4096, 64)
    assert KeyScreen(key).nbytes == 8 * (4096 * (64 + 2) + 16 * 12)
    assert KeyScreen(key).nbytes < 0.26 * key.nbytes


@pytest.mark.parametrize("backend", ["auto", "blocked", "reference"])
def test_every_backend_takes_a_screen(backend):
    query, key, value = normal(1, 4, 3, 16) * 3, normal(1, 2, 600, 16), normal(1, 2, 600, 16, seed=2)
    expected = retrieve(query, key, value, backend="reference")
    output = retrieve(query, key, value, screen=KeyScreen(key), backend=backend)
    torch.testing.assert_close(output, expected, atol=1e-5, rtol=0)


def test_double_keys():
    query, key = normal(1, 1, 3, 16).double(), normal(1, 1, 600, 16).double()
    screen = KeyScreen(key)
    lower, upper = screen.score_bounds(query, 16)
    assert ((lower <= query @ key.mT) & (query @ key.mT <= upper)).all()
    expected = retrieve(query, key, key, backend="reference")
    torch.testing.assert_close(retrieve(query, key, key, screen=screen), expected, atol=1e-12, rtol=0)


def test_no_keys():
    screen = KeyScreen(torch.zeros(1, 2, 0, 16))
    assert len(screen) == 0
    screen.append(normal(1, 2, 3, 16))
    assert len(screen) == 3
    assert len(KeyScreen(torch.zeros(0, 2, 5, 16))) == 5


def test_bad_input():
    key = normal(1, 2, 10, 16)
    with pytest.raises(TypeError, match="floating point"):
        KeyScreen(key.long())
    with pytest.raises(ValueError, match="four dimensions"):
        KeyScreen(key[0])
    screen = KeyScreen(key)
    with pytest.raises(ValueError, match=r"\(1, 2, 3, 8\).*does not continue.*\(1, 2, 16\)"):
        screen.append(normal(1, 2, 3, 8))
    with pytest.raises(ValueError, match="between 0 and the 10 keys"):
        screen.crop(11)
    with pytest.raises(ValueError, match="between 0 and the 10 keys"):
        screen.drop_first(-1)
    with pytest.raises(ValueError, match=r"shape \(1, 2, 10, 16\).*does not fit key of shape \(1, 2, 11, 16\)"):
        retrieve(normal(1, 2, 1, 16), normal(1, 2, 11, 16), normal(1, 2, 11, 16), screen=screen)
    with pytest.raises(TypeError, match="screen must be a KeyScreen or a bool, got Tensor"):
        retrieve(key, key, key, screen=key)
    with pytest.raises(ValueError, match="screen and places"):
        retrieve(key, key, key, screen=screen, places=torch.arange(10)[None])
