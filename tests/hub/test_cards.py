# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Model cards, without a Hub."""

import sys

import pytest
from huggingface_hub import ModelCard

from hf_sparse_hopfield import calibrate, to_sparse_hopfield
from hf_sparse_hopfield.hub import model_card, push_folder, support_sizes
from hf_sparse_hopfield.models import (
    SparseHopfieldForMultipleInstanceClassification,
    SparseHopfieldMultipleInstanceConfig,
)

from ..tiny_models import tiny_inputs, tiny_model
from .own_models import multiple_instance


def test_plot_comes_from_calibration_and_can_be_missing(tmp_path, monkeypatch):
    model, report = calibrate(tiny_model("bert"), [tiny_inputs("bert")], alpha=1.5, progress=False)
    card = model_card(model, calibration=report)
    card.save(tmp_path / "README.md")
    assert (tmp_path / "support.png").read_bytes().startswith(b"\x89PNG") and "](support.png)" in card.text
    assert "on the batches of calibration" in card.text and "## Calibration" in card.text
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    card = model_card(model, batches=[tiny_inputs("bert")])
    card.save(tmp_path / "other" / "README.md")
    assert "There is no plot: matplotlib was not installed" in card.text and "counted on given inputs" in card.text
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["README.md"]


def test_license_comes_from_a_local_card_and_no_path_goes_out(tmp_path):
    (tmp_path / "README.md").write_text("---\nlicense: mit\n---\n")
    model = to_sparse_hopfield(tiny_model("bert"))
    model.config._name_or_path = str(tmp_path)
    command = f"hf-sparse-hopfield convert '{tmp_path}/my model' out --alpha 1.5"
    card = model_card(model, base_model=str(tmp_path), command=command)
    assert card.data.license == "mit" and card.data.base_model is None
    assert str(tmp_path) not in str(card) and "convert 'my model' out --alpha 1.5" in card.text
    assert model_card(model, base_model="owner/name").data.license is None  # tests are offline


def test_a_model_of_our_own_without_hopfield_layers():
    config = SparseHopfieldMultipleInstanceConfig(input_size=4, aggregation="gated_attention")
    card = model_card(SparseHopfieldForMultipleInstanceClassification(config))
    assert "| 1.0 | 1.0 |" in card.text and "of the package hf_sparse_hopfield" in card.text


def test_the_card_of_a_dense_model_says_so():
    card = model_card(tiny_model("bert"), metrics={"accuracy": 0.5}, base_model="me/base", repo_id="me/x")
    assert "sparse" not in str(card).lower() and "It is dense: its attention is softmax" in card.text
    assert card.data.tags == ["bert"] and card.data.base_model == "me/base" and card.data.pipeline_tag == "fill-mask"
    assert 'AutoModelForMaskedLM.from_pretrained("me/x")' in card.text and "| accuracy | 0.5000 |" in card.text
    own = model_card(multiple_instance(alpha=1.0)[0])
    assert "sparse-attention" not in own.data.tags and "It is dense" in own.text
    assert "import hf_sparse_hopfield" in own.text and "## Settings" in own.text  # it still needs the package


def test_what_is_counted_and_known_already_is_taken():
    model = to_sparse_hopfield(tiny_model("t5"))
    support = support_sizes(model, [tiny_inputs("t5")])
    metrics = {"bleu": 30.0, "signature": "nrefs:1"}
    card = model_card(model, support=support, pipeline_tag="translation", metrics=metrics, dataset="a/b")
    assert card.data.pipeline_tag == "translation" and "counted on given inputs" in card.text
    assert "| signature | nrefs:1 |" in card.text
    assert [result.metric_type for result in card.data.eval_results] == ["bleu"]


def test_results_are_renewed_and_the_rest_stays():
    model = to_sparse_hopfield(tiny_model("bert"))
    old = model_card(model, metrics={"accuracy": 0.1}, dataset="a/b", license="mit", repo_id="me/x")
    new = model_card(model, metrics={"accuracy": 0.9}, dataset="a/b", license="gpl", into=ModelCard(str(old)))
    assert new.data.license == "mit" and [result.metric_value for result in new.data.eval_results] == [0.9]
    assert new.text.count("## Evaluation") == 1 and "| accuracy | 0.9000 |" in new.text
    assert model_card(model, metrics={"accuracy": 0.9}).data.get("model-index") is None  # on nobody knows what


def test_unknown_options_are_refused():
    model = to_sparse_hopfield(tiny_model("bert"))
    with pytest.raises(TypeError, match="metric"):
        model_card(model, metric={"accuracy": 1.0})


def test_offline_is_told(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(OSError, match="(?s)offline.*hf upload me/x"):
        push_folder(tmp_path, "me/x")


def test_model_card_names_a_hub_id_but_no_path(tmp_path):
    model = to_sparse_hopfield(tiny_model("bert"), {"alpha": 1.5})
    card = model_card(model, base_model="owner/name", comparison={"cosine": 0.99})
    assert card.data.base_model == "owner/name" and "0.99" in card.text
    assert model_card(model, base_model=str(tmp_path)).data.base_model is None
    card = model_card(model, command=f"convert {tmp_path}/in out --text={tmp_path}/text.txt --alpha=1.5")
    assert "convert in out --text=text.txt --alpha=1.5" in card.text and str(tmp_path) not in card.text
