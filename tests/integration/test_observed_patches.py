# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""What observers see of attention classes that compute softmax themselves."""

import pytest
import torch

from hf_sparse_hopfield import to_sparse_hopfield
from hf_sparse_hopfield.calibration.calibration import calibrate
from hf_sparse_hopfield.observation import Observer, OwnSettings, observed, own_settings

from ..tiny_families import tiny_family
from ..tiny_models import tiny_inputs, tiny_model, tiny_output


class Recorder(Observer):
    def __init__(self):
        self.problems = {}

    def observe(self, name, problem):
        self.problems[name] = problem


@pytest.mark.parametrize("beta", [0.35, [0.2, 0.4, 0.8, 1.6]])
def test_observing_attention_of_torch(beta):
    """The head of SigLIP is a `torch.nn.MultiheadAttention`, which is reached as a whole."""
    inputs = {"pixel_values": torch.randn(2, 3, 32, 32)}
    model = tiny_family("siglip_vision_model")
    expected = model(**inputs).pooler_output
    model = to_sparse_hopfield(model, {"alpha": 1.5, "beta": beta})
    sparse = model(**inputs).pooler_output
    recorder = Recorder()
    with observed(model, recorder):
        torch.testing.assert_close(model(**inputs).pooler_output, expected, rtol=1e-3, atol=1e-3)
    with observed(model, OwnSettings()):
        torch.testing.assert_close(model(**inputs).pooler_output, sparse)
    assert recorder.problems["head.attention"].beta == 1
    first, again = (calibrate(model, [inputs], progress=False)[1].layers for _ in range(2))
    assert again["head.attention"]["beta"] == pytest.approx(first["head.attention"]["beta"], rel=1e-4)


@pytest.mark.parametrize("name", ["mpnet", "bloom"])
def test_an_observer_chooses_after_it_has_seen_the_values(name):
    """As layer-wise calibration does: the settings of a layer follow from the retrieval that they are for."""
    model = to_sparse_hopfield(tiny_model(name), {"alpha": 2.0, "beta": 3.0})
    inputs = tiny_inputs(name)
    with torch.no_grad():
        sparse = tiny_output(model, inputs)

    class Late(Recorder):
        def settings(self, name, parameters):
            return own_settings(parameters) if name in self.problems else None

    late = Late()
    with torch.no_grad(), observed(model, late):
        torch.testing.assert_close(tiny_output(model, inputs), sparse, rtol=1e-4, atol=1e-4)
    assert all(problem.value.shape[-1] == 8 for problem in late.problems.values())
