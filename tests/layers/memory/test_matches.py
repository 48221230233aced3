# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Retrieval from candidates: many queries are taken a few at a time."""

import pytest
import torch

from hf_sparse_hopfield import HopfieldMemory
from hf_sparse_hopfield.layers.memory import matches


@pytest.mark.parametrize("beta", [0.05, 3.0])
def test_queries_at_a_time_do_not_matter(monkeypatch, beta):
    torch.manual_seed(0)
    memory, queries = HopfieldMemory(torch.randn(900, 8), beta=beta, alpha=1.5), torch.randn(33, 8)
    whole = memory.search(queries, steps=2)
    monkeypatch.setattr(matches, "_NUMBERS_AT_ONCE", 2000)
    parts = memory.search(queries, steps=2)
    assert torch.equal(whole.rows, parts.rows)
    torch.testing.assert_close(parts.weights, whole.weights)
    torch.testing.assert_close(parts.output, whole.output)
    torch.testing.assert_close(parts.energies, whole.energies)
