# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Which models warn that they are not calibrated: the first time they run, once, and no others."""

import copy
import json
import logging
import pickle
import threading

import pytest
import torch
from transformers import AutoConfig, AutoModelForMaskedLM, Trainer, TrainingArguments

from hf_sparse_hopfield import calibrate, to_dense, to_sparse_hopfield
from hf_sparse_hopfield.diagnostics import sparsity_report
from hf_sparse_hopfield.integration import uncalibrated
from hf_sparse_hopfield.integration.uncalibrated import ADVICE, CALIBRATED

from ..tiny_models import tiny_inputs, tiny_model


INPUTS = tiny_inputs("bert")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dense")
    tiny_model("bert").save_pretrained(folder)
    return folder


@pytest.fixture
def warnings(monkeypatch, caplog):
    """A function that runs a model and returns the number of warnings, as in a process that has not warned yet."""
    caplog.set_level(logging.WARNING)

    def count(model, run=lambda model: model(**INPUTS)):
        monkeypatch.setattr(uncalibrated, "_said", threading.Lock())
        caplog.clear()
        with torch.no_grad():
            run(model)
            run(model)
        return sum(ADVICE in message for message in caplog.messages)

    return count


def pretrained(folder, **kwargs):
    return AutoModelForMaskedLM.from_pretrained(folder, **kwargs)


def test_pretrained_weights_warn_once(folder, warnings):
    assert warnings(to_sparse_hopfield(pretrained(folder))) == 1
    assert warnings(to_sparse_hopfield(pretrained(folder, dtype=torch.bfloat16), {"alpha": 1.5, "layers": [1]})) == 1
    assert warnings(pretrained(folder, attn_implementation="sparse_hopfield")) == 1
    changed = pretrained(folder)
    changed.set_attn_implementation("sparse_hopfield")
    assert warnings(changed) == 1
    assert warnings(copy.deepcopy(changed)) == 1
    assert warnings(pickle.loads(pickle.dumps(to_sparse_hopfield(pretrained(folder))))) == 1


def test_what_is_no_pretrained_model_or_needs_no_calibration_does_not_warn(folder, warnings):
    named = AutoConfig.from_pretrained(folder)  # has the path of the checkpoint, and the model random weights
    by_name = AutoModelForMaskedLM.from_config(named, attn_implementation="sparse_hopfield").eval()
    for model in (by_name, to_sparse_hopfield(AutoModelForMaskedLM.from_config(named).eval())):
        assert warnings(model) == 0
    assert warnings(to_sparse_hopfield(pretrained(folder), {"alpha": 1.0})) == 0
    assert warnings(to_sparse_hopfield(pretrained(folder), {"alpha": 1.5, "beta": 0.3})) == 0  # someone chose it
    assert warnings(to_dense(to_sparse_hopfield(pretrained(folder)))) == 0
    assert warnings(pretrained(folder)) == 0


def test_calibration_and_diagnostics_do_not_warn(folder, warnings):
    options = {"alpha": 1.5, "refine_steps": 2, "refine_on": "dense", "progress": False}

    def calibrate_and_run(model):
        calibrate(model, [INPUTS], **options)
        model(**INPUTS)

    assert warnings(to_sparse_hopfield(pretrained(folder)), calibrate_and_run) == 0
    assert warnings(to_sparse_hopfield(pretrained(folder)), lambda model: sparsity_report(model, [INPUTS])) == 0


def test_training_does_not_warn_and_evaluating_before_does(folder, warnings, tmp_path):
    arguments = TrainingArguments(
        str(tmp_path), max_steps=1, save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True
    )
    samples = [{"input_ids": row, "labels": row} for row in INPUTS["input_ids"]]

    def train_and_evaluate(model):
        trainer = Trainer(model, arguments, train_dataset=samples, eval_dataset=samples)
        with torch.enable_grad():
            trainer.train()
        trainer.evaluate()

    def evaluate(model):
        Trainer(model, arguments, eval_dataset=samples).evaluate()

    assert warnings(to_sparse_hopfield(pretrained(folder)), train_and_evaluate) == 0
    assert warnings(to_sparse_hopfield(pretrained(folder)), evaluate) == 1
    assert warnings(to_sparse_hopfield(pretrained(folder).train()).eval()) == 0


def entry(folder):
    return json.loads((folder / "config.json").read_text()).get(CALIBRATED)


def test_checkpoints_say_that_they_are_not_calibrated(folder, warnings, tmp_path):
    to_sparse_hopfield(pretrained(folder)).save_pretrained(tmp_path / "converted")
    pretrained(folder, attn_implementation="sparse_hopfield").save_pretrained(tmp_path / "by_name")
    loaded = pretrained(tmp_path / "converted")
    assert not hasattr(loaded.config, CALIBRATED)
    loaded.save_pretrained(tmp_path / "again")
    for name in ("converted", "by_name", "again"):
        assert entry(tmp_path / name) is False and warnings(pretrained(tmp_path / name)) == 1
    to_dense(loaded).save_pretrained(tmp_path / "dense")
    assert entry(tmp_path / "dense") is None
    random = AutoModelForMaskedLM.from_config(AutoConfig.from_pretrained(tmp_path / "converted")).eval()
    assert warnings(random) == 0


def test_checkpoints_that_are_calibrated_or_trained_or_old_do_not_warn(folder, warnings, tmp_path):
    to_sparse_hopfield(pretrained(folder)).save_pretrained(tmp_path / "converted")
    calibrated, _ = calibrate(pretrained(tmp_path / "converted"), [INPUTS], refine_steps=0, progress=False)
    calibrated.save_pretrained(tmp_path / "calibrated")
    pretrained(tmp_path / "converted").train().save_pretrained(tmp_path / "trained")
    to_sparse_hopfield(tiny_model("bert")).save_pretrained(tmp_path / "random")
    for name in ("calibrated", "trained", "random"):
        assert entry(tmp_path / name) is None and warnings(pretrained(tmp_path / name)) == 0


def test_families_that_compute_their_softmax_themselves_warn(warnings, tmp_path):
    model = tiny_model("mpnet")
    model.save_pretrained(tmp_path)
    sparse = type(model).from_pretrained(tmp_path, attn_implementation="sparse_hopfield")
    assert warnings(sparse, lambda model: model(**tiny_inputs("mpnet"))) == 1
    assert warnings(to_sparse_hopfield(model), lambda model: model(**tiny_inputs("mpnet"))) == 0


def test_compiled_and_exported_models_warn_without_a_break_of_the_graph(folder, warnings):
    model = to_sparse_hopfield(pretrained(folder))
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    assert warnings(compiled) == 1
    torch._dynamo.reset()
    exported = []
    assert warnings(model, lambda model: exported.append(torch.export.export(model, (), INPUTS))) == 1
    torch.testing.assert_close(exported[0].module()(**INPUTS).logits, model(**INPUTS).logits)


def test_threads_warn_once_together(folder, warnings):
    def run(model):
        threads = [threading.Thread(target=model, kwargs=INPUTS) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert warnings(to_sparse_hopfield(pretrained(folder)), run) == 1
