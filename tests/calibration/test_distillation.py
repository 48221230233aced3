# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import copy
import json

import pytest
import torch
from transformers import TrainingArguments

from hf_sparse_hopfield import DistillationOptions, calibrate, distill, to_sparse_hopfield
from hf_sparse_hopfield.calibration.distillation_module import Distillation
from hf_sparse_hopfield.integration.binding import LayerRetrieval
from hf_sparse_hopfield.observation import Observer, observed

from ..tiny_models import sharpened, tiny_inputs, tiny_model


def _batches(count=8, labels=True, seed=0):
    generator = torch.Generator().manual_seed(seed)
    windows = torch.randint(0, 90, (count, 2, 16), generator=generator)
    return [{"input_ids": x, **({"labels": x} if labels else {})} for x in windows]


def _calibrated(alpha=2.0, sharp=6.0):
    model, _ = calibrate(
        sharpened(tiny_model("llama"), sharp), _batches(2), alpha=alpha, refine_steps=0, progress=False
    )
    return model


def _arguments(folder, **options):
    options = {"save_strategy": "no", "report_to": [], "use_cpu": True, "logging_steps": 1, **options}
    return TrainingArguments(str(folder), **options)


def test_the_model_comes_closer_and_only_attention_changes(tmp_path):
    model = to_sparse_hopfield(sharpened(tiny_model("llama")), {"alpha": 2.0})
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    model, report = distill(
        model, _batches(), steps=12, layer_steps=6, settings_learning_rate=0.1, progress=False,
        training_arguments=_arguments(tmp_path),
    )  # fmt: skip
    assert report.held_out["after"]["divergence"] < 0.5 * report.held_out["before"]["divergence"]
    assert report.held_out["after"]["dense_loss"] == report.held_out["before"]["dense_loss"]  # of the weights before
    assert report.steps == 18 and report.tokens == 18 * 32 and len(report.losses) == 18
    changed = {name for name, weight in model.state_dict().items() if not torch.equal(weight, before[name])}
    assert changed and all("self_attn" in name for name in changed)
    assert all(change > 0 for change in report.changed.values())
    assert not any(parameter.numel() == 4 for parameter in model.parameters()), "settings are fixed again"
    assert all(parameter.requires_grad for parameter in model.parameters())
    report.save(tmp_path / "report.json")
    assert json.loads((tmp_path / "report.json").read_text())["mean_support"] == pytest.approx(report.mean_support)


def test_the_settings_are_saved_with_the_model(tmp_path):
    from hf_sparse_hopfield.checkpoints.loading import load_model

    model, _ = distill(_calibrated(), _batches(), steps=3, layer_steps=1, progress=False)
    model.save_pretrained(tmp_path)
    tokens = _batches(1)[0]["input_ids"]
    with torch.no_grad():
        torch.testing.assert_close(
            load_model(tmp_path)(input_ids=tokens).logits, model.eval()(input_ids=tokens).logits
        )


def test_a_limit_on_the_support_is_kept():
    options = {"layer_steps": 0, "settings_learning_rate": 0.1, "progress": False}
    _, free = distill(_calibrated(1.5, 2.5), _batches(), steps=10, **options)
    limit = 0.6 * free.mean_support
    _, kept = distill(_calibrated(1.5, 2.5), _batches(), steps=80, max_support=limit, **options)
    assert free.mean_support > 0.3 and kept.mean_support < 1.2 * limit


def test_it_resumes_bit_for_bit(tmp_path):
    arguments = {"save_strategy": "steps", "save_steps": 3}
    options = {"steps": 4, "layer_steps": 2, "max_support": 0.5, "progress": False}
    whole, _ = distill(_calibrated(), _batches(), training_arguments=_arguments(tmp_path, **arguments), **options)
    resumed, report = distill(
        _calibrated(), _batches(), training_arguments=_arguments(tmp_path, **arguments),
        resume_from_checkpoint=str(tmp_path / "checkpoint-3"), **options,
    )  # fmt: skip
    assert report.steps == 6
    for name, weight in whole.state_dict().items():
        assert torch.equal(weight, resumed.state_dict()[name]), name
    assert whole.config.sparse_hopfield == resumed.config.sparse_hopfield


def test_the_teacher_is_the_model_before(tmp_path):
    model = _calibrated()
    tokens = _batches(1)[0]["input_ids"]
    with torch.no_grad(), observed(model, Observer()):
        dense = model(input_ids=tokens).logits
    distillation = Distillation(model, None, DistillationOptions())
    distillation.before = {n: p.detach().clone() for n, p in model.named_parameters() if "self_attn.q_proj" in n}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name in distillation.before:
                parameter.mul_(1.5)
        with distillation.dense() as teacher:
            torch.testing.assert_close(teacher(input_ids=tokens).logits, dense)
        with observed(model, Observer()):
            assert (model(input_ids=tokens).logits - dense).abs().max() > 1e-4


def test_mixed_precision_trains_the_weights_it_returns(tmp_path):
    model = to_sparse_hopfield(sharpened(tiny_model("llama")), {"alpha": 2.0})
    _, report = distill(
        model, _batches(), steps=12, layer_steps=6, learning_rate=1e-3, settings_learning_rate=0.1, progress=False,
        training_arguments=_arguments(tmp_path, bf16=True),
    )  # fmt: skip
    # measured in full precision: autocast must not have mixed up the weights of before and now
    assert report.held_out["after"]["divergence"] < 0.5 * report.held_out["before"]["divergence"]


def test_another_teacher_and_half_precision(tmp_path):
    model, teacher = _calibrated(), sharpened(tiny_model("llama"))
    model, report = distill(
        model, _batches(labels=False), teacher, steps=4, layer_steps=2, progress=False,
        training_arguments=_arguments(tmp_path, bf16=True, gradient_accumulation_steps=2),
    )  # fmt: skip
    assert report.tokens == 6 * 2 * 32 and "dense_loss" not in report.held_out["after"]


@pytest.mark.parametrize("name", ["bert", "t5", "whisper", "vit"])
def test_models_without_logits_or_without_tokens(name):
    batches = [tiny_inputs(name)] * 3
    model = to_sparse_hopfield(sharpened(tiny_model(name), 3.0), {"alpha": 2.0})
    _, report = distill(model, batches, steps=6, layer_steps=4, settings_learning_rate=0.1, progress=False)
    assert report.unit == ("tokens" if name in ("bert", "t5") else "samples") and report.teacher == "the dense model"
    assert report.held_out["after"]["divergence"] < report.held_out["before"]["divergence"]


def test_what_is_wrong_is_said_and_the_model_stays_as_it_was():
    with pytest.raises(ValueError, match="batches has 1"):
        distill(_calibrated(), _batches(1))
    with pytest.raises(TypeError, match="distill has no option 'step'"):
        distill(_calibrated(), _batches(), step=3)
    with pytest.raises(ValueError, match="max_support=0.1 and budget=0.1 exclude each other"):
        DistillationOptions(max_support=0.1, budget=0.1)
    with pytest.raises(ValueError, match="both 0"):
        DistillationOptions(steps=0, layer_steps=0)
    with pytest.raises(ValueError, match="no sparse attention"):
        distill(tiny_model("llama"), _batches())
    model = _calibrated()
    before = copy.deepcopy(model.state_dict()), model.config.sparse_hopfield
    bad = [{"input_ids": torch.full((1, 4), 10**6)} for _ in range(3)]
    with pytest.raises(IndexError):
        distill(model, bad, steps=2, layer_steps=0, progress=False)
    assert model.config.sparse_hopfield == before[1] and model.state_dict().keys() == before[0].keys()
    assert not any(m.learn_beta for m in model.modules() if isinstance(m, LayerRetrieval))


def test_low_rank_updates_of_weights_that_are_kept_transposed():
    pytest.importorskip("peft")
    model = to_sparse_hopfield(sharpened(tiny_model("gpt2")), {"alpha": 2.0})
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    model, report = distill(model, _batches(), steps=6, layer_steps=2, rank=2, progress=False)
    assert report.held_out["after"]["divergence"] < report.held_out["before"]["divergence"]
    changes = [weight - before[name] for name, weight in model.state_dict().items() if "attn.c_" in name]
    ranks = {int(torch.linalg.matrix_rank(change, rtol=1e-3)) for change in changes if change.ndim == 2}
    assert ranks == {2} and all(change > 0 for change in report.changed.values())


def test_low_rank_updates_are_merged_into_the_weights(tmp_path):
    pytest.importorskip("peft")
    model = _calibrated()
    names = {name for name, _ in model.named_parameters()}
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    distilled, report = distill(
        model, _batches(), steps=8, layer_steps=4, rank=2, progress=False, training_arguments=_arguments(tmp_path)
    )
    assert distilled is model and {name for name, _ in model.named_parameters()} == names
    assert report.held_out["after"]["divergence"] < report.held_out["before"]["divergence"]
    assert report.held_out["after"]["dense_loss"] == report.held_out["before"]["dense_loss"]
    changes = {name: model.state_dict()[name] - weight for name, weight in before.items()}
    changed = {name: change for name, change in changes.items() if change.abs().max() > 0}
    assert len(changed) == 8 and all("self_attn" in name for name in changed)
    assert {int(torch.linalg.matrix_rank(change, rtol=1e-3)) for change in changed.values()} == {2}
    site = "model.layers.0.self_attn"
    parts = [name for name in changed if name.startswith(site)]
    ratio = sum(changed[n].square().sum() for n in parts) / sum(before[n].square().sum() for n in parts)
    assert report.changed[site] == pytest.approx(float(ratio) ** 0.5, rel=1e-4)
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_low_rank_updates_are_saved_as_an_adapter(tmp_path):
    peft = pytest.importorskip("peft")
    dense = sharpened(tiny_model("llama"), 6.0)
    dense.save_pretrained(tmp_path / "dense")
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tmp_path / "dense")
    model, _ = calibrate(model, _batches(2), alpha=2.0, refine_steps=0, progress=False)
    adapted, _ = distill(model, _batches(), steps=4, layer_steps=2, rank=2, merge=False, progress=False)
    assert isinstance(adapted, peft.PeftModel)
    adapted.save_pretrained(tmp_path / "adapter")
    assert (tmp_path / "adapter" / "adapter_model.safetensors").stat().st_size < 50_000
    loaded = peft.AutoPeftModelForCausalLM.from_pretrained(tmp_path / "adapter")
    tokens = _batches(1)[0]["input_ids"]
    with torch.no_grad():
        expected = adapted.eval()(input_ids=tokens).logits
        torch.testing.assert_close(loaded.eval()(input_ids=tokens).logits, expected)
        with adapted.disable_adapter():
            assert not torch.allclose(adapted(input_ids=tokens).logits, expected, atol=1e-4), (
                "the updates do something"
            )


def test_an_interrupted_low_rank_run_leaves_the_model_as_it_was(monkeypatch):
    pytest.importorskip("peft")
    model = _calibrated()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}

    def interrupted(self, batch):
        raise KeyboardInterrupt

    monkeypatch.setattr(Distillation, "forward", interrupted)
    with pytest.raises(KeyboardInterrupt):
        distill(model, _batches(), steps=2, rank=2, progress=False)
    assert model.state_dict().keys() == before.keys()
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())


def test_a_teacher_that_does_not_fit_is_refused_before_any_work():
    with pytest.raises(ValueError, match=r"teacher .* does not fit .* logits of shape \(2, 16, 321\)"):
        distill(_calibrated(), _batches(labels=False), tiny_model("llama", vocab_size=321), steps=1, progress=False)
    with pytest.raises(ValueError, match=r"teacher .* fails on the batches \(IndexError"):
        distill(_calibrated(), _batches(labels=False), tiny_model("llama", vocab_size=7), steps=1, progress=False)
    other = tiny_model("gpt2", vocab_size=_calibrated().config.vocab_size)
    with pytest.raises(ValueError, match=r"no module 'model.layers.0.self_attn' to match: set layer_steps=0"):
        distill(_calibrated(), _batches(labels=False), other, steps=1, progress=False)
    distill(_calibrated(), _batches(labels=False), other, steps=1, layer_steps=0, progress=False)
    wider = tiny_model("llama", hidden_size=64)
    with pytest.raises(ValueError, match=r"that those of the model cannot match .* set layer_steps=0"):
        distill(_calibrated(), _batches(labels=False), wider, steps=1, progress=False)
    with pytest.raises(TypeError, match="teacher must be a model, .* got 'a/path'"):
        distill(_calibrated(), _batches(), "a/path")
    with pytest.raises(TypeError, match="options must be DistillationOptions or None"):
        distill(_calibrated(), _batches(), None, {"steps": 3})
    model = _calibrated()
    with pytest.raises(ValueError, match="shares weights with the model"):
        distill(model, _batches(), model)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_a_teacher_in_another_precision(dtype):
    teacher = sharpened(tiny_model("llama"), 6.0).to(dtype)
    _, report = distill(
        _calibrated(),
        _batches(labels=False),
        teacher,
        steps=6,
        layer_steps=6,
        settings_learning_rate=0.1,
        progress=False,
    )
    assert report.held_out["after"]["divergence"] < report.held_out["before"]["divergence"]


@pytest.mark.parametrize("options", [{}, {"max_support": 0.5}])
def test_loggers_and_the_history_get_divergence_and_support(tmp_path, options):
    arguments = _arguments(tmp_path, logging_steps=2, gradient_accumulation_steps=2)
    batches = _batches(12)
    _, report = distill(
        _calibrated(), batches, steps=4, layer_steps=2, progress=False, training_arguments=arguments, **options
    )
    assert [entry["step"] for entry in report.log] == [2, 4, 6]
    assert [set(entry) - {"step", "loss", "support"} for entry in report.log] == [
        {"layer_error"},
        *[{"divergence"}] * 2,
    ]
    assert all(0 < entry["support"] <= 1 for entry in report.log)
    if not options:  # the mean over all batches since the last log
        found = [entry.get("divergence", entry.get("layer_error")) for entry in report.log]
        assert found == pytest.approx(report.losses, rel=1e-4)


@pytest.mark.parametrize("learned", [False, True])
def test_a_distillation_that_fails_leaves_the_model_as_it_was(monkeypatch, learned):
    model = to_sparse_hopfield(sharpened(tiny_model("llama")), {"alpha": 2.0, "learn_beta": learned}).train()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    config = model.config.sparse_hopfield
    forward, seen = Distillation.forward, []

    def interrupted(self, batch):
        seen.append(batch)
        if len(seen) > 4:
            raise KeyboardInterrupt
        return forward(self, batch)

    monkeypatch.setattr(Distillation, "forward", interrupted)
    with pytest.raises(KeyboardInterrupt):
        distill(model, _batches(), steps=4, layer_steps=2, progress=False)
    assert model.state_dict().keys() == before.keys()
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    assert model.config.sparse_hopfield == config and model.training


@pytest.mark.parametrize("layer_steps", [0, 2])
def test_infinite_outputs_and_nothing_but_padding_are_errors(layer_steps):
    padding = [{**batch, "attention_mask": torch.zeros_like(batch["input_ids"])} for batch in _batches(labels=False)]
    broken = _calibrated()
    with torch.no_grad():
        broken.lm_head.weight[3, 3] = torch.nan
    for model, batches in ((_calibrated(), padding), (broken, _batches(labels=False))):
        settings = model.config.sparse_hopfield
        if layer_steps == 0 and batches is padding:  # no position counts, so nothing is wrong
            continue
        with pytest.raises(ValueError, match="distilling met a divergence of nan in step"):
            distill(model, batches, steps=2, layer_steps=layer_steps, progress=False)
        assert model.config.sparse_hopfield == settings


def test_what_cannot_be_trained_is_refused(tmp_path):
    from accelerate import dispatch_model

    with pytest.raises(ValueError, match="gradient_checkpointing=True has no effect"):
        distill(_calibrated(), _batches(), training_arguments=_arguments(tmp_path, gradient_checkpointing=True))
    parts = ["model.embed_tokens", "model.norm", "model.rotary_emb", "lm_head", "model.layers.0"]
    places = {**dict.fromkeys(parts, "cpu"), "model.layers.1": "disk"}
    model = dispatch_model(_calibrated(), places, main_device="cpu", offload_dir=str(tmp_path), force_hooks=True)
    with pytest.raises(ValueError, match=r"not in memory \(offloaded by device_map, such as 'model"):
        distill(model, _batches(), steps=1, progress=False)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_in_half_precision_take_small_updates(dtype):
    changed = {}
    for precision in (torch.float32, dtype):
        model = to_sparse_hopfield(sharpened(tiny_model("llama"), 3.0), {"alpha": 2.0}).to(precision)
        model, report = distill(model, _batches(), steps=8, layer_steps=4, progress=False)
        assert report.held_out["after"]["divergence"] < report.held_out["before"]["divergence"]
        assert {weight.dtype for weight in model.parameters()} == {precision}
        changed[precision] = report.changed["model.layers.0.self_attn"]
    assert changed[dtype] == pytest.approx(changed[torch.float32], rel=0.3)


def test_checkpoints_of_another_distillation_are_refused(tmp_path):
    options = {"steps": 2, "layer_steps": 1, "progress": False}
    kept = _arguments(tmp_path, save_strategy="steps", save_steps=1)

    def resumed(model, batches, **changed):
        return distill(
            model,
            batches,
            training_arguments=kept,
            resume_from_checkpoint=str(tmp_path / "checkpoint-2"),
            **options | changed,
        )

    distill(_calibrated(), _batches(), training_arguments=kept, **options)
    resumed(_calibrated(), _batches())
    other = _calibrated()
    with torch.no_grad():
        other.model.layers[0].mlp.up_proj.weight.mul_(2)
    for model, batches, changed, named in (
        (other, _batches(), {}, "the weights"),
        (_calibrated(), _batches(seed=1), {}, "the first batch"),
        (_calibrated(), _batches(), {"steps": 3}, "the options"),
    ):
        with pytest.raises(ValueError, match=rf"another distillation \(not the same: {named}\)"):
            resumed(model, batches, **changed)
