# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The table of roads in the docs is that of the tests."""

import pytest

from .table import TABLE, render, road


def test_the_docs_show_every_road():
    assert TABLE.read_text(encoding="utf-8") == render(), "run `python -m tests.roads.table`"


def test_an_outcome_must_be_known():
    with pytest.raises(ValueError, match="outcome must be one of .* got 'dense'"):
        road("by foot", "dense")
