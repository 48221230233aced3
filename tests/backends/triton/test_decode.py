# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Few queries, with and without the int8 copy of the keys, and the copy itself."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_sparse_hopfield import KeyScreen
from hf_sparse_hopfield.backends import RetrievalProblem, reference, triton
from hf_sparse_hopfield.backends.triton import decode

from .conditions import DEVICE, needs_kernels


pytestmark = needs_kernels

OPTIONS = {
    "sparsemax": {"alpha": 2.0},
    "entmax15": {"alpha": 1.5},
    "any alpha": {"alpha": 1.2},
    "settings of heads": {
        "alpha": torch.tensor([1.5, 2.0, 1.1, 1.7]).view(1, 4, 1, 1),
        "beta": torch.ones(1, 4, 1, 1) * 0.7,
    },
    "softcap": {"softcap": 2.0},
    "window": {"is_causal": True, "sliding_window": 90},
    "causal": {"is_causal": True},
    "padding": {"mask": torch.arange(400).view(1, 1, 1, -1) > 77},
    "mask": {"mask": torch.rand(2, 4, 3, 400, generator=torch.Generator().manual_seed(0)) > 0.5, "alpha": 1.5},
    "nothing seen": {"mask": torch.zeros(2, 1, 1, 400, dtype=torch.bool)},
    "bias": {"bias": torch.randn(1, 4, 1, 400, generator=torch.Generator().manual_seed(0)), "alpha": 1.5},
    "sinks": {"sinks": torch.tensor([0.0, 3.0, -2.0, 9.0]), "alpha": 1.5},
}


def problem(queries, sharpness, dtype=torch.float32, **options):
    generator = torch.Generator().manual_seed(0)
    query, key, value = (
        (torch.randn(2, heads, length, width, generator=generator) * factor).to(dtype).to(DEVICE)
        for heads, length, width, factor in ((4, queries, 40, sharpness), (2, 400, 40, 1.0), (2, 400, 24, 1.0))
    )
    options = {name: value.to(DEVICE) if isinstance(value, torch.Tensor) else value for name, value in options.items()}
    return RetrievalProblem(query, key, value, scaling=40**-0.5, **options)


def exact(problem):
    precise = RetrievalProblem(
        problem.query.double(), problem.key.double(), problem.value.double(), scaling=problem.scaling,
        **{name: getattr(problem, name) for name in ("alpha", "beta", "softcap", "is_causal", "sliding_window", "mask", "bias", "sinks")},
    )  # fmt: skip
    return reference.run(precise).output


@pytest.mark.parametrize(("screened", "sharpness"), [(False, 3.0), (True, 3.0), (True, 0.2)])
@pytest.mark.parametrize("name", OPTIONS)
def test_equals_reference(name, screened, sharpness):
    built = problem(3, sharpness, **OPTIONS[name])
    built.screen = KeyScreen(built.key) if screened else False
    torch.testing.assert_close(triton.run(built).output.double(), exact(built), atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, 1e-3), (torch.bfloat16, 1e-2)])
@pytest.mark.parametrize("screened", [False, True])
def test_half_precision(dtype, tolerance, screened):
    built = problem(1, 3.0, dtype, alpha=1.5)
    built.screen = KeyScreen(built.key) if screened else False
    output = triton.run(built).output
    assert output.dtype == dtype
    torch.testing.assert_close(output.double(), exact(built), atol=tolerance, rtol=tolerance)


def test_a_screen_that_was_cropped_and_shifted():
    built = problem(2, 3.0, alpha=1.5)
    screen = KeyScreen(torch.cat([torch.randn(2, 2, 37, 40, device=DEVICE), built.key], 2))
    screen.append(torch.randn(2, 2, 9, 40, device=DEVICE))
    screen.crop(437)
    screen.drop_first(37)
    built.screen = screen
    torch.testing.assert_close(triton.run(built).output.double(), exact(built), atol=2e-5, rtol=1e-5)


def test_screened_scores_are_few(monkeypatch):
    """Of the keys of sharp rows, the kernel scores only a few."""
    built = problem(1, 6.0, alpha=2.0)
    built.screen = KeyScreen(built.key)
    seen = {}
    original = decode.run_kernel

    def spy(kernel, grid, tile, arguments):
        original(kernel, grid, tile, arguments)
        if getattr(kernel, "__name__", kernel.fn.__name__) == "screen_keys":
            seen["scored"] = arguments["SCORES"].isfinite().float().mean().item()

    monkeypatch.setattr(decode, "run_kernel", spy)
    triton.run(built)
    assert 0 < seen["scored"] < 0.2


def test_nan_does_not_vanish():
    built = problem(1, 1.0)
    built.key[0, 1, 5] = torch.nan
    for screen in (False, KeyScreen(built.key)):
        built.screen = screen
        assert triton.run(built).output.isnan().all(-1).flatten().tolist() == [False, False, True, True, *[False] * 4]


@given(st.integers(0, 10**6), st.lists(st.integers(1, 300), min_size=1, max_size=4), st.sampled_from([1, 7, 40]))
@settings(max_examples=6)
def test_the_copy_is_that_of_the_definition(seed, counts, width):
    """The kernel that adds keys writes what `KeyScreen` does in torch, up to codes that rounding decides."""
    generator = torch.Generator().manual_seed(seed)
    parts = [
        torch.randn(2, 3, count, width, generator=generator) * 10 ** torch.randn(1, generator=generator)
        for count in counts
    ]
    parts[0][0, 0, 0] = torch.nan
    parts[-1][1, 2, -1, 0] = 1e32
    screens = []
    for by_kernel in (True, False):
        screen = KeyScreen(parts[0][:, :, :0].to(DEVICE))
        for part in parts:
            screen._reserve(max(len(screen) + part.shape[2], screen.scales.shape[2]))
            if by_kernel:
                decode.append_keys(part.to(DEVICE), screen.codes, screen.scales, screen.bounds, len(screen))
            else:
                screen._copy(part.to(DEVICE))
            screen._last += part.shape[2]
        screens.append(screen)
    ours, expected = screens
    assert torch.equal(ours.scales[:, :, : len(ours)], expected.scales[:, :, : len(ours)])
    groups = -(-len(ours) // 256)
    torch.testing.assert_close(ours.bounds[:, :, :groups], expected.bounds[:, :, :groups], rtol=1e-4, atol=1e-4)
    difference = (ours._keys()[0] - expected._keys()[0]).abs()
    assert difference.max() <= 1 and (difference > 0).float().mean() < 0.01
