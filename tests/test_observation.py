# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import pytest
import torch

from hf_sparse_hopfield import to_sparse_hopfield
from hf_sparse_hopfield.backends import available_backends
from hf_sparse_hopfield.calibration.calibrate import calibrate
from hf_sparse_hopfield.calibration.comparison import OwnSettings
from hf_sparse_hopfield.observation import evaluate, evaluate_dense, observed, sampled

from .calibration.recording import Recorder
from .tiny_families import tiny_family
from .tiny_models import tiny_inputs, tiny_model, tiny_output


FAMILIES = ("bert", "llama", "t5", "vit", "mpnet", "bloom", "gpt_oss", "whisper", "llava")


@pytest.mark.parametrize("name", FAMILIES)
def test_observed_dense_is_the_dense_model(name):
    inputs = tiny_inputs(name)
    model = tiny_model(name)
    expected = tiny_output(model, inputs)
    model = to_sparse_hopfield(model, {"alpha": 1.5, "beta": 0.7})
    sparse = tiny_output(model, inputs)
    recorder = Recorder()
    with observed(model, recorder) as sites:
        output = tiny_output(model, inputs)
    torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-4)
    assert set(recorder.problems) == {site.name for site in sites}
    assert "observed" not in available_backends()
    torch.testing.assert_close(tiny_output(model, inputs), sparse)  # nothing is left behind
    assert not any("forward" in vars(site.module) for site in sites)


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
    first, again = (calibrate(model, [inputs], refine_steps=0, progress=False)[1].layers for _ in range(2))
    assert again["head.attention"]["beta"] == pytest.approx(first["head.attention"]["beta"], rel=1e-4)


@pytest.mark.parametrize("name", ["mpnet", "bloom", "bert", "llama"])
def test_observed_problem_solves_to_what_the_module_computes(name):
    inputs = tiny_inputs(name)
    model = to_sparse_hopfield(tiny_model(name), {"alpha": 1.5, "beta": 0.7})
    expected = model(**inputs, output_attentions=True).attentions[0]

    class Sparse(Recorder):
        def settings(self, name, retrieval):
            return retrieval()

    recorder = Sparse()
    with observed(model, recorder):
        output = tiny_output(model, inputs)
    torch.testing.assert_close(output, tiny_output(model, inputs), rtol=1e-4, atol=1e-4)
    problem = next(iter(recorder.problems.values()))
    result = evaluate(problem, 0.7, 1.5, return_weights=True)
    torch.testing.assert_close(result.weights, expected, rtol=1e-4, atol=1e-5)
    assert problem.value.shape[-1] == 8  # the values were found, also behind a plain matrix product


def test_sampled_rows_are_rows_of_the_whole():
    model = to_sparse_hopfield(tiny_model("llama"))
    recorder = Recorder()
    with observed(model, recorder):
        tiny_output(model, tiny_inputs("llama", batch=3))
    problem = next(iter(recorder.problems.values()))
    smaller, visible = sampled(problem, 6, torch.Generator().manual_seed(0))
    assert smaller.query.shape[0] * smaller.query.shape[2] <= 6
    whole = evaluate_dense(problem, return_weights=True).weights.flatten(0, 0)
    rows = evaluate_dense(smaller, return_weights=True).weights
    for sample, row in ((s, r) for s in range(rows.shape[0]) for r in range(rows.shape[2])):
        assert any(
            torch.allclose(whole[s, :, r], rows[sample, :, row], atol=1e-6)
            for s in range(whole.shape[0])
            for r in range(whole.shape[2])
        )
        assert int(visible[sample, 0, row]) == int((rows[sample, 0, row] > 0).sum())
