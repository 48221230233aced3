# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Products with compressed rows against dense matrices."""

import pytest
import torch

from hf_sparse_hopfield.backends.blocked import sparse_rows


@pytest.fixture
def matrix():
    """A sparse matrix: as a dense one, and as indices, counts and weights."""
    dense = torch.randn(6, 9, dtype=torch.float64) * (torch.rand(6, 9) > 0.6)
    dense[2] = 0
    return dense, dense.nonzero()[:, 1].int(), (dense != 0).sum(1), dense[dense != 0]


def test_weighted_sums(matrix):
    dense, indices, counts, weights = matrix
    table = torch.randn(9, 5, dtype=torch.float64)
    torch.testing.assert_close(sparse_rows.weighted_sums(indices, table, counts, weights), dense @ table)


def test_products(matrix):
    dense, indices, counts, _ = matrix
    table, vectors = torch.randn(9, 5, dtype=torch.float64), torch.randn(6, 5, dtype=torch.float64)
    expected = (vectors @ table.T)[dense != 0]
    torch.testing.assert_close(sparse_rows.products(indices, table, counts, vectors), expected)
    torch.testing.assert_close(sparse_rows.gathered_products(indices, table, counts, vectors, at_once=4), expected)
