# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""What adapters record of their base, what they refuse, and that they train learned alpha and beta."""

import json

import pytest
import torch
from peft import (
    AdaptionPromptConfig,
    AutoPeftModel,
    IA3Config,
    LoraConfig,
    PeftConfig,
    PeftModel,
    PrefixTuningConfig,
    PromptEncoderConfig,
    get_peft_model,
)
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, TrainingArguments

from hf_sparse_hopfield import SparseHopfieldConfig, calibrate, to_dense, to_sparse_hopfield
from hf_sparse_hopfield.diagnostics import sparsity_report
from hf_sparse_hopfield.integration.adapters import REMARK, base_settings, split_entries
from hf_sparse_hopfield.training import SparseHopfieldArguments, SparseHopfieldTrainer

from ..tiny_models import tiny_inputs, tiny_model


INPUTS = tiny_inputs("bert")
LEARNED = {"alpha": 1.5, "learn_alpha": True, "learn_beta": True}


def lora(**changes):
    return LoraConfig(**{"target_modules": ["query"], "r": 2, "init_lora_weights": False, **changes})


def logits(model, inputs=INPUTS):
    with torch.no_grad():
        return model.eval()(**inputs).logits


def written(folder):
    return json.loads((folder / "adapter_config.json").read_text())


# ---- What is recorded ----


def test_an_adapter_of_a_dense_base_is_saved_as_without_this_package(tmp_path):
    get_peft_model(tiny_model("bert"), lora(task_type="FEATURE_EXTRACTION")).save_pretrained(tmp_path)
    assert written(tmp_path)["task_type"] == "FEATURE_EXTRACTION" and "sparse_hopfield" not in written(tmp_path)
    assert PeftConfig.from_pretrained(tmp_path).sparse_hopfield is None


@pytest.mark.parametrize("task", [None, "FEATURE_EXTRACTION"])
def test_the_settings_and_a_remark_are_saved_and_read(tmp_path, task):
    settings = SparseHopfieldConfig(alpha=1.5, overrides={1: {"beta": [0.1, 0.2, 0.3, 0.4]}})
    config = lora(task_type=task)
    model = get_peft_model(to_sparse_hopfield(tiny_model("bert"), settings), config)
    model.save_pretrained(tmp_path)
    assert written(tmp_path)["task_type"] == f"{task} {REMARK}"
    assert written(tmp_path)["sparse_hopfield"] == settings.to_dict()
    assert config.task_type == task and not hasattr(config, "sparse_hopfield")  # the user's object is left alone
    read = PeftConfig.from_pretrained(tmp_path)
    assert isinstance(read, LoraConfig) and read.task_type == task and read.sparse_hopfield == settings
    read.save_pretrained(tmp_path / "alone")
    assert written(tmp_path / "alone")["sparse_hopfield"] == settings.to_dict()


def test_the_settings_are_those_at_the_time_of_saving(tmp_path):
    base = to_sparse_hopfield(tiny_model("bert"))
    model = get_peft_model(base, lora())
    calibrate(base, [INPUTS], refine_steps=0, progress=False)
    model.save_pretrained(tmp_path / "sparse")
    settings = PeftConfig.from_pretrained(tmp_path / "sparse").sparse_hopfield
    assert settings == base.config.sparse_hopfield and len(settings.overrides) == 2
    to_dense(base)
    model.save_pretrained(tmp_path / "dense")
    assert "sparse_hopfield" not in written(tmp_path / "dense")


def test_parts_with_settings_of_their_own_are_described_layer_by_layer():
    model = tiny_model("llava", {"text_config": "sparse_hopfield", "vision_config": "sdpa"})
    settings = base_settings(model)
    again = to_sparse_hopfield(tiny_model("llava"), settings)
    inputs = tiny_inputs("llava")
    torch.testing.assert_close(logits(again, inputs), logits(model, inputs))
    assert settings.layers and not any("vision" in layer for layer in settings.layers)


def test_a_remark_without_settings_is_an_error():
    with pytest.raises(ValueError, match="its settings are missing"):
        split_entries({"task_type": f"None {REMARK}"})


# ---- What fits ----


@pytest.fixture
def adapter(tmp_path):
    get_peft_model(to_sparse_hopfield(tiny_model("bert"), {"alpha": 1.5}), lora()).save_pretrained(tmp_path)
    return tmp_path


def test_another_backend_fits(adapter):
    base = to_sparse_hopfield(tiny_model("bert"), {"alpha": 1.5, "backend": "reference"})
    assert base.config.sparse_hopfield.backend == "reference"
    PeftModel.from_pretrained(base, adapter)


@pytest.mark.parametrize(
    "settings, found",
    [
        ({"alpha": 1.6}, "alpha=1.6 instead of 1.5"),
        ({"alpha": 1.5, "beta": 2.0}, "beta=2.0 instead of 1.0"),
        ({"alpha": 1.5, "steps": 2}, "steps=2 instead of 1"),
        ({"alpha": 1.5, "layers": [1]}, "layer.0.attention.self' is dense"),
        ({"alpha": 1.5, "learn_beta": True}, "learn_beta=True"),
    ],
)
def test_other_settings_do_not_fit(adapter, settings, found):
    base = to_sparse_hopfield(tiny_model("bert"), settings)
    with pytest.raises(ValueError, match=found):
        PeftModel.from_pretrained(base, adapter)
    with pytest.raises(ValueError, match=found):
        base.load_adapter(adapter)
    assert not base._hf_peft_config_loaded


def test_a_dense_model_stays_as_it_was_when_it_refuses(adapter):
    dense = tiny_model("bert")
    names = [name for name, _ in dense.named_modules()]
    with pytest.raises(ValueError, match="BertForMaskedLM is dense"):
        PeftModel.from_pretrained(dense, adapter)
    with pytest.raises(ValueError, match="BertForMaskedLM is dense"):
        dense.load_adapter(adapter)
    assert [name for name, _ in dense.named_modules()] == names and type(dense).__name__ == "BertForMaskedLM"


def test_an_adapter_without_a_record_fits_any_base(tmp_path):
    get_peft_model(tiny_model("bert"), lora()).save_pretrained(tmp_path)
    PeftModel.from_pretrained(to_sparse_hopfield(tiny_model("bert"), LEARNED), tmp_path)


def test_a_configuration_is_used_again_for_a_dense_model(tmp_path):
    config = lora()
    get_peft_model(to_sparse_hopfield(tiny_model("bert"), LEARNED), config).save_pretrained(tmp_path)
    assert type(get_peft_model(tiny_model("bert"), config).get_base_model()).__name__ == "BertForMaskedLM"


def test_an_adapter_without_a_task_names_the_auto_class_of_its_base(tmp_path):
    tiny_model("bert").base_model.save_pretrained(tmp_path / "dense")
    base = to_sparse_hopfield(type(tiny_model("bert").base_model).from_pretrained(tmp_path / "dense"), {"alpha": 1.5})
    model = get_peft_model(base, lora())
    model.save_pretrained(tmp_path / "adapter")
    assert written(tmp_path / "adapter")["auto_mapping"]["parent_library"] == "transformers"
    loaded = AutoPeftModel.from_pretrained(tmp_path / "adapter").eval()
    with torch.no_grad():
        torch.testing.assert_close(loaded(**INPUTS)[0], model.eval()(**INPUTS)[0])


def test_adapters_with_a_softmax_of_their_own_are_refused():
    config = AdaptionPromptConfig(adapter_layers=1, adapter_len=2, task_type="CAUSAL_LM")
    with pytest.raises(ValueError, match="AdaptionPromptConfig adds attention .* would stay dense"):
        get_peft_model(to_sparse_hopfield(tiny_model("llama")), config)
    get_peft_model(tiny_model("llama"), config)


# ---- Learned alpha and beta ----


@pytest.mark.parametrize(
    "name, config",
    [
        ("bert", lora()),
        ("bert", lora(modules_to_save=["cls"])),
        ("bert", IA3Config(target_modules=["key"], feedforward_modules=[])),
        ("llama", PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2)),
        ("llama", PromptEncoderConfig(task_type="CAUSAL_LM", num_virtual_tokens=2, encoder_hidden_size=8)),
    ],
    ids=["lora", "modules", "ia3", "prefix", "p-tuning"],
)
def test_a_new_adapter_trains_and_saves_them(name, config, tmp_path):
    model = get_peft_model(to_sparse_hopfield(tiny_model(name), LEARNED), config)
    trained = {key for key, parameter in model.named_parameters() if parameter.requires_grad}
    assert sum("modules_to_save.default.log_beta" in key for key in trained) == 2
    assert sum("modules_to_save.default.alpha_logit" in key for key in trained) == 2
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if key in trained:
                parameter.add_(0.5)
    model.save_pretrained(tmp_path)
    assert sum(key.endswith("log_beta") for key in load_file(tmp_path / "adapter_model.safetensors")) == 2
    loaded = PeftModel.from_pretrained(to_sparse_hopfield(tiny_model(name), LEARNED), tmp_path)
    torch.testing.assert_close(logits(loaded, tiny_inputs(name)), logits(model, tiny_inputs(name)))


def test_an_adapter_that_can_train_no_modules_says_that_they_are_frozen(caplog):
    class WithoutModules:
        is_adaption_prompt = False

    from hf_sparse_hopfield.integration.adapters import prepare_base

    prepare_base(to_sparse_hopfield(tiny_model("bert"), LEARNED), WithoutModules())
    assert "the learned alpha and beta of SparseHopfieldBertForMaskedLM are frozen" in caplog.text


def test_our_trainer_trains_them_with_their_own_learning_rate(tmp_path):
    model = get_peft_model(to_sparse_hopfield(tiny_model("bert"), LEARNED), lora())
    samples = [{"input_ids": row, "labels": row} for row in INPUTS["input_ids"]]
    arguments = TrainingArguments(
        str(tmp_path), max_steps=2, save_steps=1, learning_rate=1e-6, report_to=[], disable_tqdm=True, use_cpu=True
    )
    hopfield = SparseHopfieldArguments(**LEARNED, hopfield_learning_rate=0.1, sparsity_logging_steps=1)
    trainer = SparseHopfieldTrainer(model, arguments, train_dataset=samples, sparse_hopfield_args=hopfield)
    trainer.train()
    betas = [value for key, value in load_file(tmp_path / "checkpoint-2" / "adapter_model.safetensors").items()]
    assert any(value.shape == (4,) and value.abs().max() > 0.05 for value in betas)
    assert any("sparsity" in key or "support" in key for entry in trainer.state.log_history for key in entry)


def test_training_resumes_after_a_schedule_has_moved_alpha(tmp_path):
    samples = [{"input_ids": row, "labels": row} for row in INPUTS["input_ids"]]

    def train(resume):
        arguments = TrainingArguments(
            str(tmp_path), max_steps=4, save_steps=2, report_to=[], disable_tqdm=True, use_cpu=True
        )
        hopfield = SparseHopfieldArguments(alpha=1.5, alpha_schedule="linear")
        model = get_peft_model(to_sparse_hopfield(tiny_model("bert"), {"alpha": 1.5}), lora(lora_dropout=0.0))
        trainer = SparseHopfieldTrainer(model, arguments, train_dataset=samples, sparse_hopfield_args=hopfield)
        trainer.train(resume_from_checkpoint=resume)
        return logits(model)

    whole = train(None)
    assert PeftConfig.from_pretrained(tmp_path / "checkpoint-2").sparse_hopfield.alpha == 1.25
    torch.testing.assert_close(train(str(tmp_path / "checkpoint-2")), whole)


def test_diagnostics_see_adapters_with_their_own_alpha_and_beta_and_calibration_refuses_them():
    base = to_sparse_hopfield(tiny_model("bert"), {"alpha": 1.5, "learn_beta": True})
    before = sparsity_report(base, [INPUTS]).layers
    model = get_peft_model(base, lora(init_lora_weights=True))
    assert sparsity_report(base, [INPUTS]).layers == before
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad and name.endswith("log_beta"):
                parameter.add_(1.0)
    after = sparsity_report(base, [INPUTS]).layers
    assert all(after[name]["beta"] == pytest.approx([2.71828] * 4, rel=1e-4) for name in before)
    with pytest.raises(ValueError, match="calibrate the model before adapters are added"):
        calibrate(base, [INPUTS], progress=False)


def test_adapters_are_loaded_onto_bases_of_low_precision(tmp_path):
    tiny_model("bert").save_pretrained(tmp_path / "dense")
    base = AutoModelForMaskedLM.from_pretrained(tmp_path / "dense", dtype=torch.bfloat16)
    model = get_peft_model(to_sparse_hopfield(base, LEARNED), lora())
    model.save_pretrained(tmp_path / "adapter")
    # transformers' own integration rounds the weights of any adapter to bfloat16, peft keeps them
    loaded = AutoPeftModel.from_pretrained(tmp_path / "adapter", dtype=torch.bfloat16)
    torch.testing.assert_close(logits(loaded), logits(model))


def test_a_base_that_is_offloaded_to_disk_is_refused(tmp_path):
    tiny_model("llama").save_pretrained(tmp_path / "dense")
    base = to_sparse_hopfield(AutoModelForCausalLM.from_pretrained(tmp_path / "dense"))
    get_peft_model(base, lora(target_modules=["q_proj"])).save_pretrained(tmp_path / "adapter")
    devices = dict.fromkeys(
        ("model.embed_tokens", "model.layers.0", "model.norm", "model.rotary_emb", "lm_head"), "cpu"
    )
    with pytest.raises(ValueError, match="device_map without 'disk'"):
        AutoModelForCausalLM.from_pretrained(
            tmp_path / "adapter", device_map={**devices, "model.layers.1": "disk"}, offload_folder=tmp_path / "offload"
        )
