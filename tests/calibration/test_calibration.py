# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import json

import pytest
import torch
from transformers import AutoModel, AutoModelForCausalLM

from hf_sparse_hopfield import CalibrationOptions, SparseHopfieldConfig, to_sparse_hopfield
from hf_sparse_hopfield.calibration.calibration import calibrate, planned_refinement
from hf_sparse_hopfield.calibration.comparison import compare_with_dense
from hf_sparse_hopfield.calibration.recipe import REFINEMENT, SPARSEMAX_REFINEMENT
from hf_sparse_hopfield.checkpoints.conversion import convert_checkpoint, load_model
from hf_sparse_hopfield.cli.main import main
from hf_sparse_hopfield.demo import make_tokenizer
from hf_sparse_hopfield.demo.text import TEXT
from hf_sparse_hopfield.integration.binding import LayerRetrieval, has_sparse_retrieval
from hf_sparse_hopfield.integration.upstream import attention_name
from hf_sparse_hopfield.sample_inputs import text_batches
from hf_sparse_hopfield.training import SparseHopfieldArguments

from ..tiny_models import tiny_inputs, tiny_model, tiny_output
from .recording import batches_for


IMPROVED = ("bert", "llama", "vit", "mpnet", "bloom")


@pytest.mark.parametrize("name", IMPROVED)
def test_calibration_brings_the_model_back_to_the_dense_one(name):
    batches = batches_for(name)
    model = to_sparse_hopfield(tiny_model(name), {"alpha": 1.5})
    before = compare_with_dense(model, batches)
    calibrated, report = calibrate(model, batches, refine_steps=0, progress=False)
    assert calibrated is model
    after = compare_with_dense(model, batches)
    assert after["divergence"] < 0.5 * before["divergence"]
    assert after["cosine"] > before["cosine"]
    assert report.batches == 2
    heads = [value for layer in report.layers.values() for value in layer["beta"]]
    assert len(set(heads)) == len(heads)  # one by one


@pytest.mark.parametrize("name", ["t5", "gpt_oss", "whisper", "llava"])
def test_every_kind_of_model_is_calibrated(name):
    model, report = calibrate(tiny_model(name), batches_for(name), alpha=1.5, refine_steps=0, progress=False)
    sites = [module for module in model.modules() if isinstance(module, LayerRetrieval)]
    assert len(report.layers) == len(sites)
    for retrieval in sites:
        beta, alpha = retrieval()
        assert alpha.tolist() == 1.5 if isinstance(alpha, torch.Tensor) else alpha == 1.5
        torch.testing.assert_close(beta, torch.tensor(report.layers[retrieval.name]["beta"]), rtol=1e-4, atol=1e-6)


def test_a_support_that_no_beta_gives_is_told(caplog):
    options = {"alpha": 1.5, "objective": "support", "target_support": 0.01, "progress": False}
    _, report = calibrate(tiny_model("bert"), batches_for("bert"), **options)  # one of twelve keys is more
    assert len(report.warnings) == 1 and "target_support=0.01 is not reached by 8 of 8 heads" in report.warnings[0]


def test_what_the_batches_do_not_reach_is_told():
    text_only = [{"input_ids": batch["input_ids"][:, 4:]} for batch in batches_for("llava")]
    model, report = calibrate(tiny_model("llava"), text_only, alpha=1.5, refine_steps=0, progress=False)
    assert all("language_model" in name for name in report.layers)
    assert len(report.warnings) == 1 and "do not reach 2 of the 4" in report.warnings[0]
    assert "vision_tower" in report.warnings[0] and report.to_dict()["warnings"] == report.warnings


def test_settings_survive_saving(tmp_path):
    inputs = tiny_inputs("llama")
    model, report = calibrate(tiny_model("llama"), batches_for("llama"), alpha=1.5, refine_steps=0, progress=False)
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    torch.testing.assert_close(tiny_output(again, inputs), tiny_output(model, inputs))
    base = AutoModel.from_pretrained(tmp_path)  # the base model alone finds its layers, too
    torch.testing.assert_close(base(**inputs)[0], model.model(**inputs)[0])
    report.save(tmp_path / "calibration.json")
    assert json.loads((tmp_path / "calibration.json").read_text())["layers"] == report.layers


def test_learned_settings_are_set():
    model = to_sparse_hopfield(tiny_model("bert"), {"alpha": 1.5, "learn_beta": True})
    model, report = calibrate(model, batches_for("bert"), refine_steps=0, progress=False)
    retrieval = next(module for module in model.modules() if isinstance(module, LayerRetrieval))
    expected = torch.tensor(report.layers[retrieval.name]["beta"])
    torch.testing.assert_close(retrieval.log_beta.exp(), expected, rtol=1e-4, atol=1e-6)
    assert retrieval.log_beta.requires_grad


def test_some_layers_only_and_by_name():
    model = tiny_model("bert", attn_implementation="sparse_hopfield", sparse_hopfield={"layers": [1]})
    model, report = calibrate(model, batches_for("bert"), alpha=1.5, refine_steps=0, progress=False)
    assert list(report.layers) == ["bert.encoder.layer.1.attention.self"]
    assert model.config.sparse_hopfield.layers == [1]
    assert type(model).__name__ == "BertForMaskedLM"


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
        ({"alpha": True}, "alpha must lie in"),
        ({"budget": -1.0}, "budget must be a positive, finite number"),
        ({"budget": 0.1, "objective": "support", "target_support": 0.1}, "cannot search alpha"),
        ({"alpha": "search", "objective": "support", "target_support": 0.1}, "cannot search alpha"),
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
    with pytest.raises(TypeError, match="only once.* refine_steps=0 skips refinement"):
        calibrate(tiny_model("bert"), iter(batches_for("bert")), progress=False)
    with pytest.raises(ValueError, match="labels"):
        calibrate(tiny_model("bert"), batches_for("bert"), refine_steps=1, refine_on="loss", progress=False)


@pytest.mark.parametrize("name", ["llama", "mpnet"])
def test_a_dense_model_stays_dense_if_there_is_nothing_to_calibrate_on(name):
    model = tiny_model(name, attn_implementation="eager")
    kind, config, expected = type(model), model.config.to_dict(), tiny_output(model, tiny_inputs(name))
    for batches in (iter([]), [{"nonsense": torch.zeros(1)}]):
        with pytest.raises((ValueError, TypeError)):
            calibrate(model, batches, refine_steps=0, progress=False)
        assert type(model) is kind and type(model.config) is kind.config_class and model.config.to_dict() == config
        assert attention_name(model.config) == "eager" and not has_sparse_retrieval(model)
        assert torch.equal(tiny_output(model, tiny_inputs(name)), expected)
    calibrate(model, batches_for(name), refine_steps=0, progress=False)
    assert type(model).__name__ == f"SparseHopfield{kind.__name__}"


def test_overrides_of_before_are_kept():
    config = SparseHopfieldConfig(alpha=1.5, overrides={0: {"steps": 2}})
    model, _ = calibrate(
        to_sparse_hopfield(tiny_model("bert"), config), batches_for("bert"), refine_steps=0, progress=False
    )
    first = model.config.sparse_hopfield.for_layer("bert.encoder.layer.0.attention.self")
    assert first["steps"] == 2 and len(first["beta"]) == 4


def test_options_come_as_an_object_or_by_name():
    batches, few = batches_for("bert"), CalibrationOptions(alpha=1.5, refine_steps=2)
    model, report = calibrate(tiny_model("bert"), batches, few, progress=False)
    by_name, _ = calibrate(tiny_model("bert"), batches, alpha=1.5, refine_steps=2, progress=False)
    assert len(report.refined) == 2 and model.config.sparse_hopfield == by_name.config.sparse_hopfield
    _, report = calibrate(tiny_model("bert"), batches, few, refine_steps=0, progress=False)
    assert report.refined == [] and report.mean("alpha") == 1.5  # names win, the rest of the options stays
    with pytest.raises(TypeError, match="no option 'refine_step'; its options are alpha, objective, .*refine_steps, "):
        calibrate(tiny_model("bert"), batches, refine_step=2)


@pytest.mark.parametrize("alpha, steps", [(1.5, 32), (2.0, 64), ("search", 32)])
def test_the_recipe_is_the_default(alpha, steps):
    """The figures are those of README: 32 steps at 0.05, 64 at 0.1 for sparsemax, after a search on 8 batches."""
    batches, rate = batches_for("bert", 10), 0.1 if steps == 64 else 0.05
    model, report = calibrate(tiny_model("bert"), batches, alpha=alpha, progress=False)
    written_out = {"refine_steps": steps, "learning_rate": rate, "refine_on": "dense", "search_batches": 8, "rows": 64}
    written_out |= {"max_error": 0.05, "objective": "output", "layerwise": False, "seed": 0}
    same, _ = calibrate(tiny_model("bert"), batches, alpha=alpha, progress=False, **written_out)
    assert len(report.refined) == steps and report.batches == 8
    assert model.config.sparse_hopfield == same.config.sparse_hopfield


def test_planned_refinement_follows_the_alphas_of_the_model():
    overrides = {0: {"alpha": [2.0, 1.9, 1.8, 1.8]}, 1: {"alpha": 2.0}}
    for settings, options, expected in (
        ({"alpha": 1.5}, {}, REFINEMENT),
        ({"alpha": 2.0}, {}, SPARSEMAX_REFINEMENT),
        ({"alpha": 1.5, "overrides": overrides}, {}, SPARSEMAX_REFINEMENT),
        ({"alpha": 1.5, "overrides": {0: {"alpha": 2.0}}}, {}, REFINEMENT),  # the mean is 1.75
        ({"alpha": 2.0}, {"alpha": 1.5}, REFINEMENT),
        ({"alpha": 1.5}, {"alpha": 2.0}, SPARSEMAX_REFINEMENT),
        ({"alpha": 2.0}, {"alpha": "search"}, REFINEMENT),
        ({"alpha": 2.0}, {"budget": 0.1}, (0, 0.05)),
    ):
        model = to_sparse_hopfield(tiny_model("llama"), settings)
        assert planned_refinement(model, CalibrationOptions(**options)) == expected


@pytest.mark.parametrize("alpha", [1.5, 2.0])
def test_python_command_line_and_training_arguments_make_the_same_model(alpha, tmp_path):
    tokenizer = make_tokenizer()
    tiny_model("llama", vocab_size=len(tokenizer)).save_pretrained(tmp_path / "dense")
    tokenizer.save_pretrained(tmp_path / "dense")
    (tmp_path / "text.txt").write_text(TEXT)
    source, number = str(tmp_path / "dense"), 12

    def batches(model, tokenizer, count=number):
        return text_batches(model, tokenizer, TEXT, length=16, count=count)

    def batches_to_convert_on(model, tokenizer):  # with those that are held out
        return batches(model, tokenizer, number + 3)

    def dense():
        return load_model(source)

    by_calibrate, report = calibrate(dense(), batches(dense(), tokenizer), alpha=alpha, progress=False)
    assert report.refined and report.batches == 8
    arguments = SparseHopfieldArguments(alpha=alpha, calibration_batches=number)
    by_training_arguments = arguments.prepare(dense(), batches(dense(), tokenizer))
    convert_checkpoint(source, tmp_path / "function", {"alpha": alpha}, batches=batches_to_convert_on)
    text = ["--text", str(tmp_path / "text.txt"), "--length", "16", "--batches", str(number)]
    assert main(["convert", source, str(tmp_path / "convert"), "--alpha", str(alpha), *text]) == 0
    assert main(["calibrate", source, str(tmp_path / "calibrate"), "--alpha", str(alpha), *text]) == 0

    expected = by_calibrate.config.sparse_hopfield
    assert [len(layer["beta"]) for layer in expected.overrides.values()] == [4, 4]
    assert by_training_arguments.config.sparse_hopfield.overrides == expected.overrides
    for name in ("function", "convert", "calibrate"):
        assert load_model(str(tmp_path / name)).config.sparse_hopfield.overrides == expected.overrides, name
