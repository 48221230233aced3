# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The work that the benchmark times is what it claims."""

import pytest
import torch

from hf_sparse_hopfield.benchmark import Work
from hf_sparse_hopfield.functional import support_size


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
