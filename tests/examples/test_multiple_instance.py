# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The training script for multiple-instance classification: its smoke run, its `.npz` files, what it says of bad data."""

import importlib
import json
import pathlib

import numpy as np
import pytest
from transformers import AutoModelForSequenceClassification, Trainer


EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


@pytest.fixture
def script(monkeypatch):
    pytest.importorskip("sklearn", reason="the script reports the area under the ROC curve")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("run_multiple_instance")


@pytest.fixture
def no_step(monkeypatch):
    """Fails the test if any training starts."""

    def train(*args, **kwargs):
        raise AssertionError("training was started")

    monkeypatch.setattr(Trainer, "train", train)


def write_npz(path, labels, owners=None, width=3):
    labels = np.asarray(labels)
    owners = np.repeat(np.arange(len(labels)), 4) if owners is None else np.asarray(owners)
    features = np.random.default_rng(0).normal(size=(len(owners), width)) * 50 + 7
    np.savez(path, features=features, bag_ids=owners, bag_labels=labels)
    return str(path)


def arguments(folder, train_file, *more):
    common = ["--output_dir", str(folder / "out"), "--do_train", "--disable_tqdm", "True", "--report_to", "none"]
    return [*common, "--max_steps", "2", "--train_file", train_file, *more]


def test_smoke(script, tmp_path):
    summary = script.main(["--smoke", "--disable_tqdm", "True", "--output_dir", str(tmp_path)])
    assert summary["quality"]["test_roc_auc"] > 0.9 and summary["quality"]["test_accuracy"] > 0.85
    assert 0 < summary["support"]["share_of_keys"] < 0.8
    assert AutoModelForSequenceClassification.from_pretrained(tmp_path).config.aggregation == "pooling"


def test_npz_dense_attention_standardised(script, tmp_path):
    train_file = write_npz(tmp_path / "bags.npz", [0, 1] * 10)
    options = ["--aggregation", "gated_attention", "--sparse_hopfield", "False", "--do_eval"]
    summary = script.main(arguments(tmp_path, train_file, *options))
    assert summary["support"] == {"share_of_keys": 1.0} and "eval_accuracy" in summary["quality"]
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (config["aggregation"], config["alpha"], config["input_size"]) == ("gated_attention", 1.0, 3)
    scale = json.loads((tmp_path / "out" / "standardization.json").read_text())
    assert scale["mean"] == pytest.approx([7, 7, 7], abs=25) and scale["deviation"] == pytest.approx([50] * 3, rel=0.3)


def test_standardization_leaves_constant_features_alone(script):
    bags = [np.array([[1.0, 0.1], [3.0, 0.1]]), np.array([[5.0, 0.1]])]
    mean, deviation = script.standardization(bags)
    assert mean == pytest.approx([3, 0.1]) and deviation == pytest.approx([np.std([1, 3, 5]), 1])


@pytest.mark.parametrize(
    "content, options, message",
    [
        ({"labels": [0, 1, 1]}, ["--label_column", "target"], "has no column 'target'"),
        ({"labels": [0, 1, 7]}, ["--num_labels", "2"], "has the label 7"),
        ({"labels": [0, 1, 1], "owners": [0, 0, 1, 1]}, [], "bags without an instance: \\[2\\]"),
        ({"labels": [0, 1, 1]}, ["--aggregation", "mean"], "aggregation must be one of"),
        ({"labels": [0, 1, 1]}, ["--aggregation", "attention", "--steps", "2"], "update_steps of the Hopfield layers"),
    ],
)
def test_bad_data_and_settings_before_the_first_step(script, no_step, tmp_path, content, options, message):
    train_file = write_npz(tmp_path / "bags.npz", **content)
    with pytest.raises(ValueError, match=message):
        script.main(arguments(tmp_path, train_file, "--validation_file", train_file, *options))


def test_bags_of_different_widths(script, no_step, tmp_path):
    rows = [{"instances": [[1.0, 2.0], [0.0, 1.0]], "label": 0}, {"instances": [[1.0, 2.0, 3.0]], "label": 1}]
    path = tmp_path / "bags.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    options = ["--validation_file", str(path), "--cache_dir", str(tmp_path / "cache")]
    with pytest.raises(ValueError, match="row 1 of the split 'train' has instances of shape \\(1, 3\\)"):
        script.main(arguments(tmp_path, str(path), *options))
