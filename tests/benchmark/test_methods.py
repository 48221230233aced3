# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The methods compute the same attention."""

import pytest
import torch

from hf_sparse_hopfield.benchmark import Work
from hf_sparse_hopfield.benchmark.methods import method


@pytest.mark.parametrize("kind", ["forward", "training", "decode"])
@pytest.mark.parametrize("is_causal", [False, True])
def test_methods_agree_on_one_hot_rows(kind, is_causal):
    """Scores so far apart that softmax and entmax choose the same single key: all methods must return the same."""
    work = Work(kind, 1, 4, 160, 2.0, 4, is_causal, kv_heads=2, head_dim=16)
    query, key, value = (tensor.detach() for tensor in work.tensors())
    key = torch.nn.functional.one_hot(torch.arange(160) % 16, 16).float().expand(1, 2, 160, 16)
    value = key.roll(1, -1).contiguous()
    query = query.sign() * 0 + 1e4 * torch.nn.functional.one_hot(torch.tensor(0), 16).float()
    expected = method("sdpa", work)(query, key, value)
    for name in ("eager softmax", "entmax", "blocked", "native", "screened", "unscreened", "auto"):
        attend = method(name, work)
        if attend is not None:
            torch.testing.assert_close(attend(query, key, value), expected)


def test_backend_that_refuses_is_left_out():
    assert method("dense", Work("forward", 1, 1, 8)) is None
