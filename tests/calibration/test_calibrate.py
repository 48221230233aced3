# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import gc
import json
import math

import pytest
import torch
from transformers import AutoModel, AutoModelForCausalLM

from hf_sparse_hopfield import SparseHopfieldConfig, entmax, to_sparse_hopfield
from hf_sparse_hopfield.calibration.calibrate import calibrate
from hf_sparse_hopfield.calibration.head_search import HeadSearch, _crossing, _vertex
from hf_sparse_hopfield.calibration.refinement import compare_with_dense
from hf_sparse_hopfield.calibration.resume import Record
from hf_sparse_hopfield.diagnostics import sparsity_report
from hf_sparse_hopfield.integration.binding import LayerRetrieval
from hf_sparse_hopfield.observation import Observer, evaluate, evaluate_dense, observed

from ..tiny_families import tiny_family
from ..tiny_models import tiny_inputs, tiny_model, tiny_output


IMPROVED = ("bert", "llama", "vit", "mpnet", "bloom")


def batches_for(name, count=2):
    return [tiny_inputs(name, seed=seed, length=12) for seed in range(count)]


class Recorder(Observer):
    def __init__(self):
        self.problems = {}

    def observe(self, name, problem):
        self.problems[name] = problem


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


@pytest.mark.parametrize("objective", ["output", "kl"])
def test_values_on_another_scale_change_nothing(objective):
    reports = []
    for scale in (1, 4):
        model = tiny_model("llama")
        with torch.no_grad():
            for layer in model.model.layers:
                layer.self_attn.v_proj.weight.mul_(scale)
                layer.self_attn.o_proj.weight.div_(scale)
        options = {"alpha": "search", "objective": objective, "max_error": 0.02, "progress": False}
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


def test_a_support_that_no_beta_gives_is_told(caplog):
    options = {"alpha": 1.5, "objective": "support", "target_support": 0.01, "progress": False}
    _, report = calibrate(tiny_model("bert"), batches_for("bert"), **options)  # one of twelve keys is more
    assert len(report.warnings) == 1 and "target_support=0.01 is not reached by 8 of 8 heads" in report.warnings[0]


@pytest.mark.parametrize("name", ["llama", "bert", "mpnet", "bloom", "gptj"])
@pytest.mark.parametrize("count", [1, 3])
def test_layerwise_sees_sparse_layers(name, count):
    batches = batches_for(name, count)
    _, plain = calibrate(tiny_model(name), batches, alpha=2.0, progress=False)
    model, layerwise = calibrate(tiny_model(name), batches, alpha=2.0, layerwise=True, progress=False)
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
    options = {"alpha": "search", "max_error": 0.3, "layerwise": True, "progress": False}
    _, report = calibrate(tiny_model(name), batches_for(name, 1), **options)
    first = next(iter(report.layers))
    assert seen[first].tolist() == pytest.approx(report.layers[first]["alpha"], rel=1e-4)
    assert report.layers[first]["alpha"] != [1.25] * 4


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
    _, refined = calibrate(tiny_model("llama"), batches, budget=0.01, refine_steps=2, progress=False)
    within = refined.budget["sparse_loss"] <= 1.01 * refined.budget["dense_loss"]
    assert within == (not refined.warnings)
    _, unlabelled = calibrate(tiny_model("llama"), batches_for("llama"), budget=0.01, progress=False)
    assert unlabelled.budget["divergence"] <= 0.01


def test_a_budget_that_cannot_be_kept_is_an_error():
    batches = batches_for("llama")
    with pytest.raises(ValueError, match=r"budget=1e-09 cannot be kept: with an error of 0\.000\d+ per head"):
        calibrate(tiny_model("llama"), batches, budget=1e-9, progress=False)


def test_the_dense_model_is_measured_once(monkeypatch):
    batches = [{**batch, "labels": batch["input_ids"]} for batch in batches_for("llama")]
    model, runs = tiny_model("llama"), []
    model.register_forward_hook(lambda *_: runs.append(1))
    calibrate(model, batches, budget=0.01, progress=False)
    assert len(runs) == 2 * (1 + 1 + 5)  # the search, the dense loss, five sparse ones


def test_what_the_batches_do_not_reach_is_told():
    text_only = [{"input_ids": batch["input_ids"][:, 4:]} for batch in batches_for("llava")]
    model, report = calibrate(tiny_model("llava"), text_only, alpha=1.5, progress=False)
    assert all("language_model" in name for name in report.layers)
    assert len(report.warnings) == 1 and "do not reach 2 of the 4" in report.warnings[0]
    assert "vision_tower" in report.warnings[0] and report.to_dict()["warnings"] == report.warnings


@pytest.mark.parametrize("name", ["gpt_neo", "gptj", "bloom", "mpnet"])
def test_masked_scores_give_finite_gradients(name):
    model = tiny_family("gpt_neo") if name == "gpt_neo" else tiny_model(name)
    model = to_sparse_hopfield(model, {"alpha": 1.5, "learn_beta": True, "learn_alpha": True})
    inputs = tiny_inputs("llama", length=12)
    direction = torch.randn(model(**inputs)[0].shape[-1])

    def value():
        return (model(**inputs)[0].double() @ direction.double()).sum()

    value().backward()
    learned = {name: value.grad for name, value in model.named_parameters() if ".sparse_hopfield." in name}
    assert all(gradient.isfinite().all() and gradient.abs().sum() > 0 for gradient in learned.values())
    layer = next(module for module in model.modules() if isinstance(module, LayerRetrieval))
    values, step = layer.log_beta, 1e-2
    with torch.no_grad():
        values[0] += step
        above = value()
        values[0] -= 2 * step
        below = value()
    assert values.grad[0].item() == pytest.approx((above - below).item() / (2 * step), rel=0.05)


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
    for changed in ({"alpha": 2.0}, {"rows": 6}, {"seed": 1}, {"search_batches": 2}, {"objective": "kl"}):
        with pytest.raises(ValueError, match=rf"other arguments \(not the same: {next(iter(changed))}\)"):
            calibrate(tiny_model("llama"), batches, resume_from=path, **{**arguments, **changed})
    with pytest.raises(ValueError, match="not the same: weights"):
        calibrate(tiny_model("llama", seed=5), batches, resume_from=path, **arguments)
    with pytest.raises(ValueError, match="not the same: the first batch"):
        calibrate(tiny_model("llama"), batches[::-1], resume_from=path, **arguments)
    with pytest.raises(ValueError, match="has seen 3 batches, but there are only 1 now"):
        calibrate(tiny_model("llama"), batches[:1], resume_from=path, **arguments)
    for damage in (path.read_bytes()[:-200], b"junk", b""):
        path.write_bytes(damage)
        with pytest.raises(ValueError, match="is damaged or holds something else"):
            calibrate(tiny_model("llama"), batches, resume_from=path, **arguments)
    with pytest.raises(FileNotFoundError, match="resume_from"):
        calibrate(tiny_model("llama"), batches, resume_from=tmp_path / "no" / "state", **arguments)


@pytest.mark.parametrize("labelled", [True, False])
def test_an_interrupted_budget_goes_on_where_it_was(labelled, tmp_path, monkeypatch):
    batches = [{**batch, "labels": batch["input_ids"]} if labelled else batch for batch in batches_for("llama")]
    arguments = {"budget": 0.02, "refine_steps": 2, "progress": False}
    _, whole = calibrate(tiny_model("llama"), batches, **arguments)
    save, saved = Record.save, []

    def interrupted(self, **state):
        save(self, **state)
        saved.append(state)
        if len(state.get("bisection", {}).get("tried", [])) == 3:
            raise KeyboardInterrupt

    path = tmp_path / "state"
    monkeypatch.setattr(Record, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        calibrate(tiny_model("llama"), batches, resume_from=path, **arguments)
    saved.clear()
    monkeypatch.setattr(Record, "save", lambda self, **state: saved.append(state) or save(self, **state))
    _, resumed = calibrate(tiny_model("llama"), batches, resume_from=path, **arguments)
    assert (resumed.layers, resumed.budget) == (whole.layers, whole.budget)
    assert sum("bisection" in state for state in saved) == 2  # the fourth and the fifth


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
