# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Where the tests of the kernels run: on a GPU, or under Triton's interpreter in a process of its own (`test_interpreter.py`)."""

import importlib.util
import os

import pytest
import torch


INSTALLED = importlib.util.find_spec("triton") is not None
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU and not INTERPRETED else "cpu"

needs_triton = pytest.mark.skipif(not INSTALLED, reason="triton is not installed (it has wheels for Linux only)")
needs_kernels = [
    needs_triton,
    pytest.mark.gpu,
    pytest.mark.skipif(
        not (INTERPRETED or ON_GPU), reason="needs a GPU, or TRITON_INTERPRET=1 (test_interpreter.py sets it)"
    ),
]
