# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import pytest

from hf_sparse_hopfield.benchmark.gpu.devices import CudaDevice, InterpreterDevice

from ...backends.triton.conditions import DEVICE


class TinyCuda(CudaDevice):
    """A GPU on which only the smallest sizes are timed."""

    tiny, rounds = True, 3


@pytest.fixture
def device():
    """The GPU, or Triton's interpreter."""
    return TinyCuda() if DEVICE == "cuda" else InterpreterDevice()
