# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Newton's method against the normalizers."""

import pytest
import torch

from hf_sparse_hopfield.backends.blocked.solver import Rows, find_shift, powers, weights
from hf_sparse_hopfield.functional import entmax


ALPHAS = [1.0, 1.01, 1.1, 1.2, 4 / 3, 1.37, 1.5, 2.0]


def relative(rows: int = 6, keys: int = 50) -> torch.Tensor:
    scores = torch.randn(rows, keys, dtype=torch.float64) * 3
    return scores - scores.amax(-1, keepdim=True)


@pytest.mark.parametrize("per_row", [False, True])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_find_shift(alpha, per_row):
    z = relative()
    z[:, 7] = -torch.inf
    eps = torch.full((6, 1), alpha - 1, dtype=torch.float64) if per_row else alpha - 1
    low = torch.zeros(6, 1, dtype=torch.float64)
    shift = find_shift(Rows(z, eps), low, steps=100, accuracy=1e-13)
    torch.testing.assert_close(weights(z, shift, eps), entmax(z, alpha))
    # from a start beyond the root, and along the first dimension
    again = find_shift(Rows(z, eps), low, steps=100, accuracy=1e-13, start=shift + 0.3)
    torch.testing.assert_close(again, shift)
    if not per_row:
        turned = find_shift(Rows(z.T, eps), low.T, steps=100, accuracy=1e-13, dim=0)
        torch.testing.assert_close(turned.T, shift)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_sink_is_one_more_score(alpha):
    z, sink = relative(), -torch.rand(6, 1, dtype=torch.float64)
    low = torch.zeros(6, 1, dtype=torch.float64)
    shift = find_shift(Rows(z, alpha - 1, sink), low, steps=100, accuracy=1e-13)
    expected = entmax(torch.cat([z, sink], -1), alpha)
    torch.testing.assert_close(weights(torch.cat([z, sink], -1), shift, alpha - 1), expected)


def test_an_empty_row_stays_where_it_is():
    z = relative()
    z[2] = -torch.inf
    shift = find_shift(Rows(z, 0.5), torch.zeros(6, 1, dtype=torch.float64), steps=100, accuracy=1e-13)
    assert shift[2] == 0 and shift.isfinite().all()


@pytest.mark.parametrize("alpha", ALPHAS)
def test_powers(alpha):
    eps, z, t = alpha - 1, relative(), torch.full((6, 1), 0.4, dtype=torch.float64)
    p, w = powers(z, t, eps)
    expected = (z - t).exp() if eps == 0 else (1 + eps * (z - t)).clamp_min(0) ** (1 / eps)
    torch.testing.assert_close(p, expected, rtol=1e-6, atol=1e-12)
    slopes = torch.where(expected > 0, expected ** (1 - eps), torch.zeros_like(expected))
    torch.testing.assert_close(w, slopes, rtol=1e-6, atol=1e-12)
    assert torch.equal(weights(z, t, eps), p)
