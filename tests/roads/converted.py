# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""A converted model whose checkpoint is loaded in many ways; its fixtures are in `conftest.py`."""

import torch

from ..tiny_models import tiny_inputs, tiny_output


NAME = "sparse_hopfield"
CALIBRATED = {"alpha": 1.5, "overrides": {"layer.1": {"beta": [0.5, 1.0, 2.0, 3.0]}}}


def assert_equal(model, other, name="bert"):
    inputs = tiny_inputs(name)
    torch.testing.assert_close(tiny_output(model.eval(), inputs), tiny_output(other, inputs))
