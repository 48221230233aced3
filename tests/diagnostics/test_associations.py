# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import pytest
import torch

from hf_sparse_hopfield import to_sparse_hopfield
from hf_sparse_hopfield.diagnostics import record_associations

from ..tiny_models import tiny_inputs, tiny_model


@pytest.mark.parametrize("name", ["bert", "llama", "bloom", "t5", "vit"])
def test_associations_are_the_weights(name):
    model = to_sparse_hopfield(tiny_model(name), {"alpha": 1.5})
    inputs = tiny_inputs(name)
    weights = record_associations(model, inputs)
    for weight in weights.values():
        torch.testing.assert_close(weight.sum(-1), torch.ones(weight.shape[:3]), rtol=1e-4, atol=1e-4)
    outputs = model(**inputs, output_attentions=True)
    if name != "t5":
        for weight, expected in zip(weights.values(), outputs.attentions, strict=True):
            torch.testing.assert_close(weight, expected, rtol=1e-4, atol=1e-5)
