# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""A converted model and its checkpoint."""

import pytest

from hf_sparse_hopfield import to_sparse_hopfield

from ..tiny_models import tiny_model
from .converted import CALIBRATED


@pytest.fixture(scope="module")
def converted():
    """A converted model in memory. Tests leave it as it is."""
    return to_sparse_hopfield(tiny_model("bert"), CALIBRATED)


@pytest.fixture(scope="module")
def checkpoint(converted, tmp_path_factory):
    """The path of its checkpoint."""
    path = tmp_path_factory.mktemp("bert")
    converted.save_pretrained(path)
    return path
