# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The memory is compared with faiss on the same patterns."""

import pytest

from hf_sparse_hopfield.benchmark.memory_search import search_records


def test_against_faiss():
    pytest.importorskip("faiss", reason="faiss is a dependency of developers only")
    records = search_records(3000, 32, 0.0)
    assert [(r["queries"], r["alpha"]) for r in records] == [(1, 2.0), (1, 1.5), (64, 2.0), (64, 1.5)]
    assert all(r["ratio"] == r["faiss"] / r["seconds"] > 0 for r in records)
