# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import numpy as np
import pytest
import torch

from hf_sparse_hopfield.models import standardization


def test_constant_columns_are_only_centred():
    mean, deviation = standardization(torch.tensor([[1.0, 0.1], [3.0, 0.1], [5.0, 0.1]], dtype=torch.float64))
    assert mean.tolist() == pytest.approx([3, 0.1]) and deviation.tolist() == pytest.approx([np.std([1, 3, 5]), 1])
