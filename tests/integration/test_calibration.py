# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import gc
import json
import math

import pytest
import torch
from transformers import AutoModel, AutoModelForCausalLM

from hf_sparse_hopfield import SparseHopfieldConfig, entmax, to_sparse_hopfield
from hf_sparse_hopfield.backends import available_backends
from hf_sparse_hopfield.diagnostics import sparsity_report
from hf_sparse_hopfield.integration.calibration import calibrate
from hf_sparse_hopfield.integration.head_search import _crossing, _vertex
from hf_sparse_hopfield.integration.observation import Observer, evaluate, evaluate_dense, observed, sampled
from hf_sparse_hopfield.integration.refinement import compare_with_dense
from hf_sparse_hopfield.integration.settings import LayerRetrieval

from ..tiny_models import tiny_inputs, tiny_model, tiny_output


FAMILIES = ("bert", "llama", "t5", "vit", "mpnet", "bloom", "gpt_oss", "whisper", "llava")
IMPROVED = ("bert", "llama", "vit", "mpnet", "bloom")


def batches_for(name, count=2):
    return [tiny_inputs(name, seed=seed, length=12) for seed in range(count)]


class Recorder(Observer):
    def __init__(self):
        self.problems = {}

    def observe(self, name, problem):
        self.problems[name] = problem


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


@pytest.mark.parametrize("name", IMPROVED)
def test_calibration_brings_the_model_back_to_the_dense_one(name):
    batches = batches_for(name)
    model = to_sparse_hopfield(tiny_model(name), {"alpha": 1.5})
    before = compare_with_dense(model, batches)
    calibrated, report = calibrate(model, batches, progress=False)
    assert calibrated is model
    after = compare_with_dense(model, batches)
    assert after["divergence"] < 0.5 * before["divergence"]
    assert after["cosine"] > before["cosine"]
    assert report.batches == 2
    heads = [value for layer in report.layers.values() for value in layer["beta"]]
    assert len(set(heads)) == len(heads)  # one by one


@pytest.mark.parametrize("name", ["t5", "gpt_oss", "whisper", "llava"])
def test_every_kind_of_model_is_calibrated(name):
    model, report = calibrate(tiny_model(name), batches_for(name), alpha=1.5, progress=False)
    sites = [module for module in model.modules() if isinstance(module, LayerRetrieval)]
    assert len(report.layers) == len(sites)
    for retrieval in sites:
        beta, alpha = retrieval()
        assert alpha.tolist() == 1.5 if isinstance(alpha, torch.Tensor) else alpha == 1.5
        torch.testing.assert_close(beta, torch.tensor(report.layers[retrieval.name]["beta"]), rtol=1e-4, atol=1e-6)


def test_beta_is_the_best_one_not_only_on_a_grid():
    # one head, read off directly: no other beta gives a smaller error
    name = "llama"
    batches = batches_for(name, 1)
    model, report = calibrate(tiny_model(name), batches, alpha=2.0, rows=10**6, progress=False)
    recorder = Recorder()
    with observed(model, recorder):
        model(**batches[0])
    for site, problem in recorder.problems.items():
        dense = evaluate_dense(problem).output
        best = torch.tensor(report.layers[site]["beta"])

        def error(beta, problem=problem, dense=dense):
            return (evaluate(problem, beta, 2.0).output - dense).square().sum((0, 2, 3))

        for factor in (0.8, 0.9, 1.1, 1.25):
            assert (error(best) <= 1.05 * error(best * factor)).all()


def test_objectives():
    batches = batches_for("bert")
    model, report = calibrate(
        tiny_model("bert"), batches, alpha=2.0, objective="support", target_support=0.4, progress=False
    )
    assert report.mean("support") == pytest.approx(0.4, abs=0.06)
    _, output = calibrate(tiny_model("bert"), batches, alpha=1.5, progress=False)
    _, kl = calibrate(tiny_model("bert"), batches, alpha=1.5, objective="kl", progress=False)
    assert output.layers.keys() == kl.layers.keys()
    assert output.mean("beta") != kl.mean("beta")
    assert kl.mean("beta") == pytest.approx(output.mean("beta"), rel=0.3)


def test_layerwise_sees_sparse_layers():
    batches = batches_for("llama", 3)
    _, plain = calibrate(tiny_model("llama"), batches, alpha=2.0, progress=False)
    model, layerwise = calibrate(tiny_model("llama"), batches, alpha=2.0, layerwise=True, progress=False)
    first, second = plain.layers
    assert plain.layers[first]["beta"] == layerwise.layers[first]["beta"]
    assert plain.layers[second]["beta"] != layerwise.layers[second]["beta"]
    assert compare_with_dense(model, batches)["divergence"] < 0.2


def test_alpha_search_keeps_to_the_error():
    batches = batches_for("llama")
    _, loose = calibrate(tiny_model("llama"), batches, alpha="search", max_error=0.05, progress=False)
    _, tight = calibrate(tiny_model("llama"), batches, alpha="search", max_error=0.001, progress=False)
    assert 1 <= tight.mean("alpha") < loose.mean("alpha") <= 2
    assert all(error <= 0.001 * 1.001 for layer in tight.layers.values() for error in layer["error"])


def test_budget_is_kept():
    batches = [{**batch, "labels": batch["input_ids"]} for batch in batches_for("llama")]
    model, report = calibrate(tiny_model("llama"), batches, budget=0.01, progress=False)
    compared = compare_with_dense(model, batches)
    assert compared["sparse_loss"] <= 1.01 * compared["dense_loss"] + 1e-4
    assert report.budget["sparse_loss"] == pytest.approx(compared["sparse_loss"], rel=1e-3)
    _, wide = calibrate(tiny_model("llama"), batches, budget=0.5, progress=False)
    assert wide.mean("alpha") >= report.mean("alpha")


@pytest.mark.parametrize("against", ["loss", "dense"])
def test_refining_lowers_what_it_minimises(against):
    batches = [{**batch, "labels": batch["input_ids"]} for batch in batches_for("llama")]
    weights = {name: value.clone() for name, value in tiny_model("llama").state_dict().items()}
    model, plain = calibrate(tiny_model("llama"), batches, alpha=2.0, progress=False)
    before = compare_with_dense(model, batches)
    model, report = calibrate(
        tiny_model("llama"), batches, alpha=2.0, refine_steps=12, refine_on=against, progress=False
    )
    after = compare_with_dense(model, batches)
    key = "sparse_loss" if against == "loss" else "divergence"
    assert after[key] < before[key]
    assert len(report.refined) == 12
    measured = sparsity_report(model, batches, rows=10**6)
    assert report.mean("support") == pytest.approx(measured.share, rel=0.1)  # as refined, not as before
    assert all(torch.equal(model.state_dict()[name], value) for name, value in weights.items())
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_settings_survive_saving(tmp_path):
    inputs = tiny_inputs("llama")
    model, report = calibrate(tiny_model("llama"), batches_for("llama"), alpha=1.5, progress=False)
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    torch.testing.assert_close(tiny_output(again, inputs), tiny_output(model, inputs))
    base = AutoModel.from_pretrained(tmp_path)  # the base model alone finds its layers, too
    torch.testing.assert_close(base(**inputs)[0], model.model(**inputs)[0])
    report.save(tmp_path / "calibration.json")
    assert json.loads((tmp_path / "calibration.json").read_text())["layers"] == report.layers


def test_learned_settings_are_set():
    model = to_sparse_hopfield(tiny_model("bert"), {"alpha": 1.5, "learn_beta": True})
    model, report = calibrate(model, batches_for("bert"), progress=False)
    retrieval = next(module for module in model.modules() if isinstance(module, LayerRetrieval))
    expected = torch.tensor(report.layers[retrieval.name]["beta"])
    torch.testing.assert_close(retrieval.log_beta.exp(), expected, rtol=1e-4, atol=1e-6)
    assert retrieval.log_beta.requires_grad


def test_some_layers_only_and_by_name():
    model = tiny_model("bert", attn_implementation="sparse_hopfield", sparse_hopfield={"layers": [1]})
    model, report = calibrate(model, batches_for("bert"), alpha=1.5, progress=False)
    assert list(report.layers) == ["bert.encoder.layer.1.attention.self"]
    assert model.config.sparse_hopfield.layers == [1]
    assert type(model).__name__ == "BertForMaskedLM"


def test_deterministic_and_resumable(tmp_path):
    batches = batches_for("llama", 3)
    arguments = {"alpha": 1.5, "rows": 5, "progress": False}
    _, whole = calibrate(tiny_model("llama"), batches, **arguments)
    _, again = calibrate(tiny_model("llama"), batches, **arguments)
    assert whole.layers == again.layers
    _, other = calibrate(tiny_model("llama"), batches, seed=1, **arguments)
    assert whole.layers != other.layers

    class Interrupted:
        def __iter__(self):
            yield from batches[:2]
            raise KeyboardInterrupt

    path = tmp_path / "state"
    with pytest.raises(KeyboardInterrupt):
        calibrate(tiny_model("llama"), Interrupted(), resume_from=path, **arguments)
    _, resumed = calibrate(tiny_model("llama"), batches, resume_from=path, **arguments)
    assert resumed.layers == whole.layers
    with pytest.raises(ValueError, match="other arguments"):
        calibrate(tiny_model("llama"), batches, resume_from=path, **{**arguments, "alpha": 2.0})


def test_memory_does_not_grow_with_the_batches():
    def tensors():
        gc.collect()
        return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())

    counts = []

    def stream():
        for number in range(6):
            counts.append(tensors())
            yield tiny_inputs("llama", seed=number)

    calibrate(tiny_model("llama"), stream(), alpha=1.5, progress=False)
    assert counts[-1] - counts[2] <= 2


def test_padding_does_not_count():
    inputs = tiny_inputs("bert", length=8)
    padded = {
        "input_ids": torch.cat([inputs["input_ids"], torch.zeros(2, 5, dtype=torch.long)], 1),
        "attention_mask": torch.tensor([[1] * 8 + [0] * 5] * 2),
    }
    _, plain = calibrate(tiny_model("bert"), [inputs], alpha=1.5, progress=False)
    _, masked = calibrate(tiny_model("bert"), [padded], alpha=1.5, progress=False)
    assert masked.mean("beta") == pytest.approx(plain.mean("beta"), rel=1e-3)


@pytest.mark.parametrize(
    "arguments, match",
    [
        ({"alpha": 3.0}, "alpha must lie in"),
        ({"alpha": "best"}, "'search'"),
        ({"objective": "loss"}, "objective must be one of"),
        ({"objective": "support"}, "target_support"),
        ({"target_support": 0.1}, "target_support"),
        ({"objective": "support", "target_support": 2.0}, "target_support must lie"),
        ({"budget": 0.1, "alpha": 1.5}, "budget"),
        ({"refine_on": "x"}, "refine_on"),
        ({"refine_steps": -1}, "refine_steps"),
        ({"rows": 0}, "rows"),
        ({"search_batches": 0}, "search_batches"),
        ({"max_error": 0.0}, "max_error"),
        ({"learning_rate": 0.0}, "learning_rate"),
    ],
)
def test_wrong_arguments(arguments, match):
    with pytest.raises(ValueError, match=match):
        calibrate(tiny_model("bert"), batches_for("bert"), progress=False, **arguments)


def test_wrong_batches():
    with pytest.raises(ValueError, match="empty"):
        calibrate(tiny_model("bert"), [], progress=False)
    with pytest.raises(TypeError, match="dicts of model inputs"):
        calibrate(tiny_model("bert"), [torch.zeros(2, 3)], progress=False)
    with pytest.raises(TypeError, match="only once"):
        calibrate(tiny_model("bert"), iter(batches_for("bert")), refine_steps=2, progress=False)
    with pytest.raises(ValueError, match="labels"):
        calibrate(tiny_model("bert"), batches_for("bert"), refine_steps=1, refine_on="loss", progress=False)


def test_parabola_and_crossing():
    x = torch.linspace(-1, 1, 5, dtype=torch.float64)[:, None].expand(5, 2).contiguous()
    y = (x - torch.tensor([0.3, -0.1], dtype=torch.float64)) ** 2 + 1
    torch.testing.assert_close(_vertex(x, y), torch.tensor([0.3, -0.1], dtype=torch.float64))
    torch.testing.assert_close(_crossing(x, -x, 0.2), torch.tensor([-0.2, -0.2], dtype=torch.float64))
    assert _crossing(x, -x, 5.0).tolist() == [-1, -1]


def test_relative_error_of_a_head_is_what_it_says():
    batch = tiny_inputs("bert", batch=1)
    model, report = calibrate(tiny_model("bert"), [batch], alpha=2.0, progress=False)
    recorder = Recorder()
    with observed(model, recorder):
        model(**batch)
    name, problem = next(iter(recorder.problems.items()))
    beta = torch.tensor(report.layers[name]["beta"])
    scores = problem.query @ problem.key.transpose(-1, -2) / math.sqrt(8) * beta[:, None, None]
    output, dense = entmax(scores, 2.0) @ problem.value, evaluate_dense(problem).output
    error = (output - dense).square().sum((0, 2, 3)) / dense.square().sum((0, 2, 3))
    torch.testing.assert_close(torch.tensor(report.layers[name]["error"]), error, rtol=0.35, atol=1e-4)


def test_overrides_of_before_are_kept():
    config = SparseHopfieldConfig(alpha=1.5, overrides={0: {"steps": 2}})
    model, _ = calibrate(to_sparse_hopfield(tiny_model("bert"), config), batches_for("bert"), progress=False)
    first = model.config.sparse_hopfield.for_layer("bert.encoder.layer.0.attention.self")
    assert first["steps"] == 2 and len(first["beta"]) == 4
