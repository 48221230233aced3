# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The tests of this folder need a GPU: `pytest -m gpu`.

`GPU_TESTS_ON=cpu pytest tests/gpu` runs them on the CPU, where they say nothing about a GPU, but show that they are right themselves.
"""

import os

import pytest
import torch


WHERE = os.environ.get("GPU_TESTS_ON", "cuda")


@pytest.fixture(scope="session")
def device():
    if WHERE == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    return WHERE


@pytest.fixture(scope="session")
def devices(device):
    """Two of them."""
    if device == "cpu":
        return "cpu", "cpu"
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    return "cuda:0", "cuda:1"


@pytest.fixture
def exact(monkeypatch):
    """Convolutions of float32 in float32, so that a GPU computes what a CPU does. For products that is the default."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
