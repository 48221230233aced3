# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Tiny models of our own, with inputs."""

import torch

from hf_sparse_hopfield.models import (
    SparseHopfieldCrossformerConfig,
    SparseHopfieldCrossformerForPrediction,
    SparseHopfieldForMultipleInstanceClassification,
    SparseHopfieldMultipleInstanceConfig,
)


def multiple_instance(alpha=1.5):
    """A classifier of bags, and two bags."""
    torch.manual_seed(0)
    config = SparseHopfieldMultipleInstanceConfig(input_size=6, num_heads=2, alpha=alpha, learn_beta=True)
    mask = torch.ones(2, 5)
    mask[1, 3:] = 0
    model = SparseHopfieldForMultipleInstanceClassification(config).eval()
    return model, {"instances": 3 * torch.randn(2, 5, 6), "attention_mask": mask}


def crossformer():
    """A forecaster of time series, and two windows."""
    torch.manual_seed(0)
    config = SparseHopfieldCrossformerConfig(num_input_channels=3, context_length=24, prediction_length=12)
    model = SparseHopfieldCrossformerForPrediction(config).eval()
    return model, {"past_values": torch.randn(2, 24, 3)}
