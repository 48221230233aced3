# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import subprocess
import sys

import pytest
import torch
from transformers import HfArgumentParser, TrainingArguments

from hf_sparse_hopfield import SparseHopfieldPooling
from hf_sparse_hopfield.training import SparseHopfieldArguments
from tests.tiny_models import tiny_model


def batches(count: int) -> list[dict]:
    return [{"input_ids": torch.randint(1, 90, (2, 12))} for _ in range(count)]


def test_command_line_beside_training_arguments():
    parser = HfArgumentParser((SparseHopfieldArguments, TrainingArguments))
    line = "--alpha 1.5 --learn_beta --alpha_schedule cosine --schedule_steps 0.25 --output_dir x --sparsity_logging_steps 5"
    arguments, training = parser.parse_args_into_dataclasses(line.split())
    assert (arguments.alpha, arguments.learn_beta, arguments.schedule_steps) == (1.5, True, 0.25)
    assert [type(callback).__name__ for callback in arguments.callbacks()] == [
        "SparseHopfieldScheduleCallback",
        "SparsityLoggingCallback",
    ]
    (dense, _) = parser.parse_args_into_dataclasses(
        ["--sparse_hopfield", "false", "--output_dir", "x", *line.split()[:3]]
    )
    assert dense.callbacks() == [] and dense.layer_settings()["alpha"] == 1.0
    assert not dense.layer_settings()["learn_beta"]


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"alpha": 2.5}, r"alpha must be in \[1, 2\], got 2.5"),
        ({"beta": 0.0}, "beta must be positive"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"alpha_schedule": "exponential"}, "alpha_schedule must be one of .*'exponential'"),
        ({"alpha_schedule": "linear", "learn_alpha": True}, "exclude each other"),
        ({"beta_schedule": "linear", "learn_beta": True}, "exclude each other"),
        ({"alpha_start": 1.5}, "alpha_start=1.5 needs a schedule"),
        ({"alpha_start": 0.5, "alpha_schedule": "linear"}, "alpha must be in"),
        ({"schedule_steps": 0.5}, "schedule_steps=0.5 needs alpha_schedule or beta_schedule"),
        ({"schedule_steps": 2.5, "alpha_schedule": "linear"}, "whole number of steps above 1, got 2.5"),
        ({"schedule_steps": 0, "alpha_schedule": "linear"}, "schedule_steps must be"),
        ({"refine_steps": 3}, "refine_steps=3 .* needs calibration_batches"),
        ({"refine_steps": -1}, "refine_steps must be an integer of at least 0 or None, got -1"),
        ({"calibration_batches": -1}, "calibration_batches must be an integer of at least 0, got -1"),
        ({"sparsity_logging_steps": 0.5}, "sparsity_logging_steps must be an integer"),
        (
            {"hopfield_learning_rate": 0.1},
            "hopfield_learning_rate=0.1 needs learn_alpha, learn_beta or learn_length_power",
        ),
        ({"hopfield_learning_rate": -1.0, "learn_beta": True}, "hopfield_learning_rate must be"),
    ],
)
def test_wrong_arguments_are_refused(wrong, message):
    with pytest.raises((ValueError, TypeError), match=message):
        SparseHopfieldArguments(**wrong)


def test_prepare_converts_and_keeps_the_dense_baseline():
    model = SparseHopfieldArguments(alpha=1.5, beta=2.0, learn_beta=True, steps=2).prepare(tiny_model("llama"))
    assert type(model).__name__ == "SparseHopfieldLlamaForCausalLM"
    settings = model.config.sparse_hopfield
    assert (settings.alpha, settings.beta, settings.steps, settings.learn_beta) == (1.5, 2.0, 2, True)
    dense = tiny_model("llama")
    assert SparseHopfieldArguments(sparse_hopfield=False, alpha=1.5).prepare(dense) is dense
    assert type(dense).__name__ == "LlamaForCausalLM"
    with pytest.raises(ValueError, match="sparse_hopfield=False asks for the dense baseline"):
        SparseHopfieldArguments(sparse_hopfield=False).prepare(model)


def test_prepare_keeps_a_sparse_model_and_says_so(caplog):
    arguments = SparseHopfieldArguments(alpha=1.5)
    model = arguments.prepare(tiny_model("bert"))
    assert arguments.prepare(model) is model and not caplog.text
    SparseHopfieldArguments(alpha=1.75).prepare(model)
    assert model.config.sparse_hopfield.alpha == 1.5
    assert "keeps its own settings" in caplog.text and "{'alpha': 1.75}" in caplog.text
    layers = torch.nn.Sequential(SparseHopfieldPooling(8, alpha=1.5))
    assert arguments.prepare(layers) is layers


def test_prepare_calibrates():
    arguments = SparseHopfieldArguments(calibration_batches=2, refine_steps=0, learn_beta=True)
    given = iter(batches(5))
    model = arguments.prepare(tiny_model("bert"), given)
    assert len(list(given)) == 3
    (override,) = [value for key, value in model.config.sparse_hopfield.overrides.items() if "layer.0" in key]
    learned = model.bert.encoder.layer[0].attention.self.sparse_hopfield.beta
    assert torch.allclose(learned.detach(), torch.tensor(override["beta"]).expand(4), rtol=1e-4)
    with pytest.raises(ValueError, match="calibration_batches=2 needs batches, got None"):
        arguments.prepare(tiny_model("bert"))
    with pytest.raises(ValueError, match="there are only 1 batches"):
        arguments.prepare(tiny_model("bert"), batches(1))
    with pytest.raises(ValueError, match="made of Hopfield layers"):
        arguments.prepare(torch.nn.Sequential(SparseHopfieldPooling(8)), batches(2))


def test_prepare_refines_as_the_command_line_says():
    parser = HfArgumentParser(SparseHopfieldArguments)
    line = ["--alpha", "1.5", "--calibration_batches", "2"]
    given, overrides = batches(2), {}
    for steps in (None, 0, 32):
        more = [] if steps is None else ["--refine_steps", str(steps)]
        (arguments,) = parser.parse_args_into_dataclasses([*line, *more])
        assert arguments.refine_steps == steps
        overrides[steps] = arguments.prepare(tiny_model("bert"), given).config.sparse_hopfield.overrides
    assert overrides[None] == overrides[32] != overrides[0]


def test_importing_the_arguments_needs_no_torch():
    program = "import sys; from hf_sparse_hopfield.training import SparseHopfieldArguments as A; A(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
