# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import json
import math
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

from hf_sparse_hopfield import SparseHopfieldConfig, to_sparse_hopfield
from hf_sparse_hopfield.integration.model_settings import LiveSettings
from hf_sparse_hopfield.training import SparseHopfieldArguments, SparseHopfieldScheduleCallback, SparseHopfieldTrainer
from tests.tiny_models import tiny_model

from .run_cases import make_data, make_model


class Watcher(TrainerCallback):
    """Notes alpha and beta of the first sparse module, as a forward sees them, for every step."""

    def __init__(self, model):
        self.seen = []
        (self.module, *_) = (*LiveSettings(model).retrievals, *LiveSettings(model).layers)

    def on_step_begin(self, args, state, control, **kwargs):
        beta, alpha = self.module()
        self.seen.append((torch.as_tensor(alpha).tolist(), torch.as_tensor(beta).tolist()))


def train(
    model, folder, case="bert", sparse=None, callbacks=(), resume=None, trainer=SparseHopfieldTrainer, **training
):
    watcher = Watcher(model)
    options = {"max_steps": 4, "save_strategy": "no", "per_device_train_batch_size": 4, **training}
    options |= {"report_to": "none", "disable_tqdm": True, "use_cpu": True, "seed": 3}
    data = make_data({"model": case})
    arguments = TrainingArguments(str(folder), **options)
    extra = {} if sparse is None else {"sparse_hopfield_args": sparse}
    made = trainer(
        model, arguments, train_dataset=data, eval_dataset=data[:8], callbacks=[watcher, *callbacks], **extra
    )
    made.train(resume_from_checkpoint=resume)
    return made, watcher.seen


@pytest.mark.parametrize("schedule", ["linear", "cosine", "step"])
def test_values(schedule):
    callback = SparseHopfieldScheduleCallback(beta_schedule=schedule, beta_start=4.0, schedule_steps=10)
    values = [callback.value("beta", 1.0, step, max_steps=1000) for step in range(13)]
    assert values[0] == 4.0 and values[10:] == [1.0, 1.0, 1.0]
    formula = {
        "linear": lambda step: 4 - 3 * step / 10,
        "cosine": lambda step: 2.5 + 1.5 * math.cos(math.pi * step / 10),
        "step": lambda step: 4.0,
    }[schedule]
    assert values[:10] == pytest.approx([formula(step) for step in range(10)])
    assert callback.value("alpha", 1.7, 3, max_steps=1000) == 1.7
    share = SparseHopfieldScheduleCallback(alpha_schedule=schedule, schedule_steps=0.5)
    assert share.value("alpha", 2.0, 49, max_steps=100) < share.value("alpha", 2.0, 50, max_steps=100) == 2.0


@pytest.mark.parametrize("start, target", [(1.0, 2.0), (2.0, 1.0), (1.1, 1.7)])
def test_rounding_stays_in_the_range(start, target):
    callback = SparseHopfieldScheduleCallback(alpha_schedule="cosine", alpha_start=start)
    values = [callback.value("alpha", target, step, max_steps=9973) for step in range(9974)]
    assert min(values) == min(start, target) and max(values) == max(start, target)
    assert values == sorted(values, reverse=target < start)


def test_modules_checkpoints_and_result_have_the_values_of_their_step(tmp_path):
    arguments = SparseHopfieldArguments(alpha_schedule="linear", beta=3.0, beta_schedule="linear", schedule_steps=0.75)
    model = make_model({"model": "bert"}, arguments)
    trainer, seen = train(model, tmp_path, sparse=arguments, save_strategy="steps", save_steps=1)
    # three of four steps: 1, 4/3, 5/3, then 2
    assert [alpha for alpha, _ in seen] == pytest.approx([1, 4 / 3, 5 / 3, 2])
    assert [beta for _, beta in seen] == pytest.approx([1, 5 / 3, 7 / 3, 3])
    for step, alpha in enumerate([4 / 3, 5 / 3, 2.0, 2.0], 1):
        config = json.loads(Path(tmp_path, f"checkpoint-{step}", "config.json").read_text())
        assert config["sparse_hopfield"]["alpha"] == pytest.approx(alpha)
    trainer.save_model(tmp_path / "final")
    final = AutoModelForSequenceClassification.from_pretrained(tmp_path / "final").config.sparse_hopfield
    assert (final.alpha, final.beta) == (2.0, 3.0)


def test_resuming_goes_on_exactly_also_from_the_model_in_the_checkpoint(tmp_path, caplog):
    arguments = SparseHopfieldArguments(alpha=1.8, alpha_schedule="cosine", learn_beta=True)
    options = {"sparse": arguments, "save_strategy": "steps", "save_steps": 2}
    full, seen = train(make_model({"model": "bert"}, arguments), tmp_path, **options)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path / "checkpoint-2")
    assert 1 < loaded.config.sparse_hopfield.alpha < 1.8
    for model in (make_model({"model": "bert"}, arguments), loaded):
        resumed, seen_again = train(model, tmp_path, **options, resume=str(tmp_path / "checkpoint-2"))
        assert seen_again == seen[2:]
        assert resumed.model.config.sparse_hopfield.alpha == 1.8
        for name, weight in full.model.state_dict().items():
            assert resumed.model.state_dict()[name].equal(weight), name
    assert not caplog.text
    other = SparseHopfieldArguments(alpha=1.3, alpha_schedule="cosine", learn_beta=True)
    options["sparse"] = other
    resumed, _ = train(
        make_model({"model": "bert"}, other), tmp_path, **options, resume=str(tmp_path / "checkpoint-2")
    )
    assert resumed.model.config.sparse_hopfield.alpha == 1.8
    assert "continues to the targets of the checkpoint" in caplog.text


def test_heads_and_layers_with_values_of_their_own_end_there(tmp_path):
    betas = [0.5, 1.0, 2.0, 4.0]
    settings = SparseHopfieldConfig(
        alpha=1.5, overrides={0: {"beta": betas, "alpha": 2.0}}, layers=[0]
    )  # layer 1 stays dense
    model = to_sparse_hopfield(make_model({"model": "bert"}, SparseHopfieldArguments(sparse_hopfield=False)), settings)
    callback = SparseHopfieldScheduleCallback("linear", beta_schedule="linear")
    _, seen = train(model, tmp_path, callbacks=[callback], trainer=Trainer)
    assert [alpha for alpha, _ in seen] == [1.0, 1.25, 1.5, 1.75]
    assert seen[2][1] == pytest.approx([0.75, 1.0, 1.5, 2.5])
    assert model.config.sparse_hopfield == settings
    assert model.bert.encoder.layer[1].attention.self.sparse_hopfield is None


def test_models_made_of_layers_and_of_patched_families(tmp_path):
    arguments = SparseHopfieldArguments(alpha_schedule="linear")
    model = make_model({"model": "layers"}, arguments)
    _, seen = train(model, tmp_path, sparse=arguments, save_strategy="steps", save_steps=2)
    assert [alpha for alpha, _ in seen] == [1.0, 1.25, 1.5, 1.75]
    assert json.loads((tmp_path / "checkpoint-2" / "config.json").read_text())["alpha"] == 1.5
    assert model.config.alpha == 2.0
    patched = arguments.prepare(tiny_model("mpnet"))
    live = LiveSettings(patched)
    inputs = {"input_ids": torch.arange(8)[None]}
    sparse = patched(**inputs).logits
    tree = live.read()
    tree["configs"][0]["alpha"] = 1.0
    live.write(tree)
    assert not torch.allclose(patched(**inputs).logits, sparse)


def test_the_best_model_has_the_alpha_it_was_best_with(tmp_path):
    class Losses(Trainer):
        def evaluate(self, *args, **kwargs):  # the second is the best
            metrics = {"eval_loss": {1: 3.0, 2: 1.0}.get(self.state.global_step, 2.0)}
            self.log(metrics)
            self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
            return metrics

    arguments = SparseHopfieldArguments(alpha_schedule="linear")
    model = make_model({"model": "bert"}, arguments)
    train(
        model,
        tmp_path,
        callbacks=arguments.callbacks(),
        trainer=Losses,
        **{"save_strategy": "steps", "save_steps": 1, "eval_strategy": "steps", "eval_steps": 1},
        load_best_model_at_end=True,
    )
    assert model.config.sparse_hopfield.alpha == 1.5


def test_a_schedule_of_alpha_leaves_a_learned_beta_alone(tmp_path):
    arguments = SparseHopfieldArguments(alpha_schedule="linear", learn_beta=True, hopfield_learning_rate=0.1)
    _, seen = train(make_model({"model": "bert"}, arguments), tmp_path, sparse=arguments)
    betas = [beta for _, beta in seen]
    assert betas[0] == [1.0] * 4
    for before, now in zip(betas, betas[1:], strict=False):
        assert before != now


@pytest.mark.slow
def test_a_compiled_model_is_compiled_once(tmp_path):
    import torch._dynamo

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    arguments = SparseHopfieldArguments(alpha_schedule="linear", beta_schedule="cosine", beta=2.0)
    results = []
    for compiled in (True, False):
        options = {"torch_compile": True, "torch_compile_backend": "aot_eager"} if compiled else {}
        model = make_model({"model": "llama"}, arguments)
        trainer, seen = train(
            model, tmp_path, "llama", sparse=arguments, logging_steps=1, learning_rate=1e-2, max_steps=5, **options
        )
        results.append([entry["loss"] for entry in trainer.state.log_history if "loss" in entry])
        if compiled:
            assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
            assert [alpha[0] for alpha, _ in seen] == pytest.approx([1, 1.2, 1.4, 1.6, 1.8])
        assert model.config.sparse_hopfield.alpha == 2.0
        assert LiveSettings(model).retrievals[0].alpha == 2.0
    assert len(results[0]) == 5 and results[0] == pytest.approx(results[1], rel=1e-4)


def test_what_cannot_be_scheduled_is_refused(tmp_path):
    with pytest.raises(ValueError, match="both 'constant'"):
        SparseHopfieldScheduleCallback()
    with pytest.raises(ValueError, match="alpha_schedule must be one of"):
        SparseHopfieldScheduleCallback("quadratic")
    with pytest.raises(ValueError, match="beta must be positive"):
        SparseHopfieldScheduleCallback(beta_schedule="linear", beta_start=0.0)
    callback = SparseHopfieldScheduleCallback("linear")
    learned = make_model({"model": "bert"}, SparseHopfieldArguments(learn_alpha=True))
    with pytest.raises(ValueError, match="the model learns it"):
        train(learned, tmp_path, callbacks=[callback], trainer=Trainer)
    model = make_model({"model": "bert"}, SparseHopfieldArguments())
    with pytest.raises(ValueError, match="2 callbacks SparseHopfieldScheduleCallback"):
        train(model, tmp_path, callbacks=[callback, SparseHopfieldScheduleCallback("linear")], trainer=Trainer)
    with pytest.raises(ValueError, match="nothing to schedule"):
        LiveSettings(torch.nn.Linear(2, 2))
