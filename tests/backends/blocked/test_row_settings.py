# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""beta, alpha and sinks of the rows of a block."""

import torch

from hf_sparse_hopfield.backends.blocked.layout import Block, Layout
from hf_sparse_hopfield.backends.blocked.row_settings import RowSettings

from .problems import PLAIN


LAYOUT = Layout(batch=2, kv_heads=3, groups=2, queries=5, keys=7)
BLOCK = Block(slice(1, 2), slice(1, 3), slice(2, 4), 0, 7)


def test_numbers_stay_numbers():
    settings = RowSettings(LAYOUT, PLAIN._replace(factor=0.7, alpha_value=1.5), torch.float32)
    assert settings.beta_of(BLOCK) == settings.beta_of_all() == 0.7
    assert settings.eps_of(BLOCK) == settings.eps_of_all() == 0.5
    assert settings.sink_of(BLOCK) is None


def test_tensors_are_cut_to_the_block():
    beta, alpha, sinks = torch.rand(2, 6, 5, 1), 1 + torch.rand(2, 6, 5, 1), torch.randn(6)
    settings = RowSettings(LAYOUT, PLAIN._replace(beta=beta, alpha=alpha, sinks=sinks), torch.float64)
    here = (slice(1, 2), slice(2, 6), slice(2, 4))
    for got, right in ((settings.beta_of(BLOCK), beta), (settings.eps_of(BLOCK) + 1, alpha)):
        assert got.shape == (2, 4, 1)
        torch.testing.assert_close(got.flatten(), right[here].double().flatten())
    torch.testing.assert_close(settings.beta_of_all(), beta.double().flatten())
    torch.testing.assert_close(settings.eps_of_all(), alpha.double().flatten() - 1)
    expected = sinks[2:].double().repeat_interleave(2)
    torch.testing.assert_close(settings.sink_of(BLOCK).flatten(), expected)
