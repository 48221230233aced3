# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The work that the benchmark times is what it claims."""

import pytest
import torch

from hf_sparse_hopfield.benchmark import Work
from hf_sparse_hopfield.functional import entmax, support_size


@pytest.mark.parametrize(("alpha", "support"), [(2.0, 4), (1.5, 16), (2.0, 256)])
def test_sharpness_gives_the_wanted_support(alpha, support):
    work = Work("forward", 1, 2, 1024, alpha, support)
    query, key, _ = work.tensors()
    found = support_size(query @ key.transpose(-1, -2) / 8, alpha).float().mean()
    assert support / 1.5 < found < support * 1.5


def test_densest_work_uses_all_keys():
    query, key, _ = Work("forward", 1, 1, 256, 1.2, 0).tensors()
    assert (support_size(query @ key.transpose(-1, -2) / 8, 1.2) == 256).all()


def test_half_precision():
    work = Work("decode", 1, 4, 100, kv_heads=2, dtype="bfloat16")
    assert {tensor.dtype for tensor in work.tensors()} == {torch.bfloat16}
    assert work.label == "decode 1, 4/2, 100, 64 bf16"


def test_local_inputs_have_the_support_in_few_places():
    """64 queries in a row share the keys that they look for, as they do not among independent numbers."""
    shares = {}
    for inputs in ("sharp", "local"):
        work = Work("forward", 1, 2, 2048, 1.5, 8, is_causal=True, kv_heads=1, inputs=inputs)
        query, key, _ = work.tensors()
        scores = (query @ key.transpose(-1, -2) / 8)[0].masked_fill(
            torch.ones(2048, 2048, dtype=torch.bool).triu(1), -torch.inf
        )
        support = entmax(scores, 1.5) > 0
        shares[inputs] = support.unflatten(2, (-1, 64)).unflatten(1, (-1, 64)).any(4).any(2).float().mean()
        assert 4 < support[:, -32:].sum(-1).float().mean() < 16
    assert shares["local"] < shares["sharp"] / 4


def test_plain_inputs_are_not_scaled():
    query, key, value = Work("decode", 1, 400, 4, kv_heads=100, inputs="plain").tensors()
    assert all(abs(tensor.std().item() - 1) < 0.05 for tensor in (query, key, value))
    local = Work("decode", 1, 4, 100, kv_heads=2, inputs="local").tensors()
    assert local[0].shape == (1, 4, 1, 64) and local[1].shape == (1, 2, 100, 64)
