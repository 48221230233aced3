# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import gc
import math

import pytest
import torch

from hf_sparse_hopfield import entmax
from hf_sparse_hopfield.calibration.calibration import calibrate
from hf_sparse_hopfield.calibration.comparison import compare_with_dense
from hf_sparse_hopfield.calibration.head_search import _LENGTHS, HeadSearch, _crossing, _tilted, _vertex
from hf_sparse_hopfield.diagnostics import sparsity_report
from hf_sparse_hopfield.observation import observed
from hf_sparse_hopfield.observed_problems import evaluate, evaluate_dense

from ..tiny_models import tiny_inputs, tiny_model
from .recording import Recorder, batches_for


@pytest.mark.parametrize(
    ("lengths", "slack"), [(False, 1.05), (True, 1.2)]
)  # rows of an octave are taken for equally long
def test_beta_is_the_best_one_not_only_on_a_grid(lengths, slack):
    # one head, read off directly: no other beta gives a smaller error
    name = "llama"
    batches = batches_for(name, 1)
    options = {"alpha": 2.0, "rows": 10**6, "refine_steps": 0, "progress": False, "lengths": lengths}
    model, report = calibrate(tiny_model(name), batches, **options)
    recorder = Recorder()
    with observed(model, recorder):
        model(**batches[0])
    for site, problem in recorder.problems.items():
        dense = evaluate_dense(problem).output
        best, power = (torch.tensor(report.layers[site][name]) for name in ("beta", "length_power"))

        def error(beta, problem=problem, dense=dense, power=power):
            return (evaluate(problem, beta, 2.0, length_power=power).output - dense).square().sum((0, 2, 3))

        for factor in (0.8, 0.9, 1.1, 1.25):
            assert (error(best) <= slack * error(best * factor)).all()


def test_objectives():
    batches = batches_for("bert")
    model, report = calibrate(
        tiny_model("bert"), batches, alpha=2.0, objective="support", target_support=0.4, progress=False
    )
    assert report.mean("support") == pytest.approx(0.4, abs=0.06)
    _, output = calibrate(tiny_model("bert"), batches, alpha=1.5, refine_steps=0, progress=False)
    _, kl = calibrate(tiny_model("bert"), batches, alpha=1.5, objective="kl", refine_steps=0, progress=False)
    assert output.layers.keys() == kl.layers.keys()
    assert output.mean("beta") != kl.mean("beta")
    assert kl.mean("beta") == pytest.approx(output.mean("beta"), rel=0.3)


@pytest.mark.parametrize("objective", ["output", "kl"])
def test_values_on_another_scale_change_nothing(objective):
    reports = []
    for scale in (1, 4):
        model = tiny_model("llama")
        with torch.no_grad():
            for layer in model.model.layers:
                layer.self_attn.v_proj.weight.mul_(scale)
                layer.self_attn.o_proj.weight.div_(scale)
        options = {"alpha": "search", "objective": objective, "max_error": 0.02, "refine_steps": 0, "progress": False}
        reports.append(calibrate(model, batches_for("llama"), **options)[1])
    assert reports[0].mean("alpha") == pytest.approx(reports[1].mean("alpha"), rel=1e-3)
    assert reports[0].mean("error") == pytest.approx(reports[1].mean("error"), rel=1e-2)


@pytest.mark.parametrize("target", [0.05, 0.3])
def test_a_small_support_may_take_a_large_beta(target):
    batch = tiny_inputs("bert", batch=4, length=60)
    options = {"alpha": 1.5, "objective": "support", "target_support": target, "progress": False}
    model, report = calibrate(tiny_model("bert"), [batch], **options)
    assert report.mean("support") == pytest.approx(target, rel=0.15) and not report.warnings
    assert sparsity_report(model, [batch], rows=10**6).share == pytest.approx(target, rel=0.3)


@pytest.mark.parametrize("name", ["llama", "bert", "mpnet", "bloom", "gptj"])
@pytest.mark.parametrize("count", [1, 3])
def test_layerwise_sees_sparse_layers(name, count):
    batches = batches_for(name, count)
    _, plain = calibrate(tiny_model(name), batches, alpha=2.0, refine_steps=0, progress=False)
    model, layerwise = calibrate(tiny_model(name), batches, alpha=2.0, layerwise=True, refine_steps=0, progress=False)
    first, second = plain.layers
    assert plain.layers[first]["beta"] == layerwise.layers[first]["beta"]
    assert plain.layers[second]["beta"] != layerwise.layers[second]["beta"]
    if name == "llama":
        assert compare_with_dense(model, batches)["divergence"] < 0.2


@pytest.mark.parametrize("name", ["llama", "bloom"])
def test_layerwise_goes_on_with_the_alphas_chosen_so_far(name, monkeypatch):
    seen = {}
    settings = HeadSearch.settings

    def spy(self, layer, retrieval):
        chosen = settings(self, layer, retrieval)
        if chosen is not None:
            seen[layer] = chosen[1]
        return chosen

    monkeypatch.setattr(HeadSearch, "settings", spy)
    options = {"alpha": "search", "max_error": 0.3, "layerwise": True, "refine_steps": 0, "progress": False}
    _, report = calibrate(tiny_model(name), batches_for(name, 1), **options)
    first = next(iter(report.layers))
    assert seen[first].tolist() == pytest.approx(report.layers[first]["alpha"], rel=1e-4)
    assert report.layers[first]["alpha"] != [1.25] * 4


def test_alpha_search_keeps_to_the_error():
    batches = batches_for("llama")
    _, loose = calibrate(tiny_model("llama"), batches, alpha="search", max_error=0.05, refine_steps=0, progress=False)
    _, tight = calibrate(tiny_model("llama"), batches, alpha="search", max_error=0.001, refine_steps=0, progress=False)
    assert 1 <= tight.mean("alpha") < loose.mean("alpha") <= 2
    assert all(error <= 0.001 * 1.001 for layer in tight.layers.values() for error in layer["error"])


def test_memory_does_not_grow_with_the_batches():
    def tensors():
        gc.collect()
        return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())

    counts = []

    def stream():
        for number in range(6):
            counts.append(tensors())
            yield tiny_inputs("llama", seed=number)

    calibrate(tiny_model("llama"), stream(), alpha=1.5, refine_steps=0, progress=False)
    assert counts[-1] - counts[2] <= 2


def test_padding_does_not_count():
    inputs = tiny_inputs("bert", length=8)
    padded = {
        "input_ids": torch.cat([inputs["input_ids"], torch.zeros(2, 5, dtype=torch.long)], 1),
        "attention_mask": torch.tensor([[1] * 8 + [0] * 5] * 2),
    }
    _, plain = calibrate(tiny_model("bert"), [inputs], alpha=1.5, refine_steps=0, progress=False)
    _, masked = calibrate(tiny_model("bert"), [padded], alpha=1.5, refine_steps=0, progress=False)
    assert masked.mean("beta") == pytest.approx(plain.mean("beta"), rel=1e-3)


def test_parabola_and_crossing():
    x = torch.linspace(-1, 1, 5, dtype=torch.float64)[:, None].expand(5, 2).contiguous()
    y = (x - torch.tensor([0.3, -0.1], dtype=torch.float64)) ** 2 + 1
    torch.testing.assert_close(_vertex(x, y), torch.tensor([0.3, -0.1], dtype=torch.float64))
    torch.testing.assert_close(_crossing(x, -x, 0.2), torch.tensor([-0.2, -0.2], dtype=torch.float64))
    assert _crossing(x, -x, 5.0).tolist() == [-1, -1]


def test_the_power_of_the_length_is_found():
    beta, power = torch.tensor([0.2, -0.7, 1.1]).double(), torch.tensor([-0.2, 0.0, 0.15]).double()
    exponents = beta.round() + torch.arange(-2, 2.5, 0.5, dtype=torch.float64)[:, None]
    seen = ((_LENGTHS > -5) & (_LENGTHS < 4)).double()
    error = (exponents[..., None] - beta[:, None] - power[:, None] * _LENGTHS).square() * seen
    found = _tilted(exponents, error)
    torch.testing.assert_close(found[0], beta, atol=0.02, rtol=0)
    torch.testing.assert_close(found[1], power, atol=0.01, rtol=0)


def test_rows_of_one_length_say_nothing_about_it():
    _, report = calibrate(tiny_model("vit"), batches_for("vit"), alpha=1.5, refine_steps=0, progress=False)
    assert report.mean("length_power") == 0.0 and report.longest == 5
    _, report = calibrate(tiny_model("llama"), batches_for("llama"), alpha=1.5, progress=False)
    assert report.mean("length_power") != 0.0
    _, report = calibrate(tiny_model("llama"), batches_for("llama"), alpha=1.5, lengths=False, progress=False)
    assert report.mean("length_power") == 0.0


def test_relative_error_of_a_head_is_what_it_says():
    batch = tiny_inputs("bert", batch=1)
    model, report = calibrate(tiny_model("bert"), [batch], alpha=2.0, refine_steps=0, progress=False)
    recorder = Recorder()
    with observed(model, recorder):
        model(**batch)
    name, problem = next(iter(recorder.problems.items()))
    beta = torch.tensor(report.layers[name]["beta"])
    scores = problem.query @ problem.key.transpose(-1, -2) / math.sqrt(8) * beta[:, None, None]
    output, dense = entmax(scores, 2.0) @ problem.value, evaluate_dense(problem).output
    error = (output - dense).square().sum((0, 2, 3)) / dense.square().sum((0, 2, 3))
    torch.testing.assert_close(torch.tensor(report.layers[name]["error"]), error, rtol=0.35, atol=1e-4)
