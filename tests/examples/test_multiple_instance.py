# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The training script for multiple-instance classification: its smoke run, its `.npz` files, what it says of bad data."""

import json
import os
import subprocess

import numpy as np
import pytest
from transformers import AutoModelForSequenceClassification

from tests.training import launch

from .conftest import EXAMPLES


@pytest.fixture
def module(script):
    pytest.importorskip("sklearn", reason="the script reports the area under the ROC curve")
    return script("multiple_instance")


def write_npz(path, labels, owners=None, width=3):
    labels = np.asarray(labels)
    owners = np.repeat(np.arange(len(labels)), 4) if owners is None else np.asarray(owners)
    features = np.random.default_rng(0).normal(size=(len(owners), width)) * 50 + 7
    np.savez(path, features=features, bag_ids=owners, bag_labels=labels)
    return str(path)


def arguments(folder, train_file, *more):
    common = ["--output_dir", str(folder / "out"), "--do_train", "--disable_tqdm", "True", "--report_to", "none"]
    return [*common, "--max_steps", "2", "--train_file", train_file, *more]


def test_smoke(module, tmp_path):
    summary = module.main(["--smoke", "--disable_tqdm", "True", "--output_dir", str(tmp_path)])
    assert summary["quality"]["test_roc_auc"] > 0.9 and summary["quality"]["test_accuracy"] > 0.85
    assert 0 < summary["support"]["share_of_keys"] < 0.8
    assert AutoModelForSequenceClassification.from_pretrained(tmp_path).config.aggregation == "pooling"


def test_npz_dense_attention_standardised(module, tmp_path):
    train_file = write_npz(tmp_path / "bags.npz", [0, 1] * 10)
    options = ["--aggregation", "gated_attention", "--sparse_hopfield", "False", "--do_eval"]
    summary = module.main(arguments(tmp_path, train_file, *options))
    assert summary["support"] == {"share_of_keys": 1.0} and "eval_accuracy" in summary["quality"]
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (config["aggregation"], config["alpha"], config["input_size"]) == ("gated_attention", 1.0, 3)
    scale = json.loads((tmp_path / "out" / "standardization.json").read_text())
    assert scale["mean"] == pytest.approx([7, 7, 7], abs=25) and scale["deviation"] == pytest.approx([50] * 3, rel=0.3)


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
def test_bad_data_and_settings_before_the_first_step(module, no_step, tmp_path, content, options, message):
    train_file = write_npz(tmp_path / "bags.npz", **content)
    with pytest.raises(ValueError, match=message):
        module.main(arguments(tmp_path, train_file, "--validation_file", train_file, *options))


def test_test_data_that_nobody_asks_for_are_not_read(module, tmp_path):
    train_file = write_npz(tmp_path / "bags.npz", [0, 1] * 10)
    test_file = write_npz(tmp_path / "test.npz", [-1] * 4)
    summary = module.main(arguments(tmp_path, train_file, "--test_file", test_file))
    assert summary["steps"] == 2
    with pytest.raises(ValueError, match="has the label -1"):
        module.main(arguments(tmp_path, train_file, "--test_file", test_file, "--do_predict"))


def test_two_processes_write_once_and_count_as_one(module, tmp_path):
    """And what they have trained is used on raw features, standardised as in training."""
    command = [*launch.in_two_processes(), str(EXAMPLES / "run_multiple_instance.py"), "--smoke", "--use_cpu"]
    path = os.pathsep.join([str(EXAMPLES.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "TMPDIR": str(tmp_path), "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    done = subprocess.run(
        [*command, "--max_steps", "20"], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (output,) = tmp_path.glob("smoke-*")  # one directory for both
    assert (output / "standardization.json").is_file() and not list(output.glob("*.part"))
    assert done.stdout.count("share of keys") == 1
    together = json.loads((output / "summary.json").read_text(encoding="utf-8"))
    options = ["--model_name_or_path", str(output), "--output_dir", str(tmp_path / "alone"), "--disable_tqdm", "True"]
    for split, dataset in module.smoke_data().items():
        dataset.to_json(tmp_path / f"{split}.json")
        options += [f"--{split}_file", str(tmp_path / f"{split}.json")] if split != "train" else []
    alone = module.main([*options, "--do_eval", "--do_predict", "--cache_dir", str(tmp_path / "cache")])
    assert alone["support"] == pytest.approx(together["support"], rel=1e-6)
    assert alone["quality"] == pytest.approx(together["quality"], rel=1e-4, abs=1e-6)


def test_bags_of_different_widths(module, no_step, tmp_path):
    rows = [{"instances": [[1.0, 2.0], [0.0, 1.0]], "label": 0}, {"instances": [[1.0, 2.0, 3.0]], "label": 1}]
    path = tmp_path / "bags.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    options = ["--validation_file", str(path), "--cache_dir", str(tmp_path / "cache")]
    with pytest.raises(ValueError, match="row 1 of the split 'train' has instances of shape \\(1, 3\\)"):
        module.main(arguments(tmp_path, str(path), *options))
