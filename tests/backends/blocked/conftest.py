# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import pytest

from hf_sparse_hopfield.backends.blocked import dense_pieces as pieces
from hf_sparse_hopfield.backends.blocked import partition


@pytest.fixture
def small_blocks(monkeypatch):
    """Many blocks of few rows, as long sequences have them."""
    monkeypatch.setattr(partition, "_BLOCK_ENTRIES", 1 << 13)
    monkeypatch.setattr(partition, "_BLOCK_QUERIES", 16)
    monkeypatch.setattr(partition, "_FULL_BLOCK_QUERIES", 16)
    monkeypatch.setattr(pieces, "_DENSE_ENTRIES", 1 << 11)
