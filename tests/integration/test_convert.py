# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Conversion: classes, saving and loading, back to dense, what is refused."""

import copy
import json

import pytest
import torch
import transformers
from safetensors.torch import load_file
from torch import nn
from transformers import AutoModel

from hf_sparse_hopfield import SparseHopfieldConfig, to_dense, to_sparse_hopfield
from hf_sparse_hopfield.integration.sites import attention_sites

from ..tiny_families import tiny_family
from ..tiny_models import SPECIFICATIONS, tiny_inputs, tiny_model, tiny_output


NAME = "sparse_hopfield"
LEARNED = {"alpha": 1.5, "learn_alpha": True, "learn_beta": True}
AUTO_CLASSES = {
    **dict.fromkeys(("bert", "mpnet"), "AutoModelForMaskedLM"),
    **dict.fromkeys(("t5", "bart", "marian"), "AutoModelForSeq2SeqLM"),
    "vit": "AutoModelForImageClassification",
    "whisper": "AutoModelForSpeechSeq2Seq",
    "llava": "AutoModelForImageTextToText",
}


def auto_class(name: str):
    return getattr(transformers, AUTO_CLASSES.get(name, "AutoModelForCausalLM"))


@pytest.mark.parametrize("name", SPECIFICATIONS)
def test_convert_save_load_and_back(name, tmp_path):
    inputs = tiny_inputs(name)
    dense = tiny_model(name)
    weights = copy.deepcopy(dense.state_dict())
    expected_dense = tiny_output(dense, inputs)
    expected_sparse = tiny_output(tiny_model(name, NAME, sparse_hopfield={"alpha": 1.5}), inputs)
    family, class_name = dense.config.model_type, type(dense).__name__

    model = to_sparse_hopfield(dense, LEARNED)
    assert isinstance(model, getattr(transformers, class_name))
    assert type(model).__name__ == f"SparseHopfield{class_name}"
    assert (model.config.model_type, model.config.base_model_type) == ("sparse_hopfield", family)
    torch.testing.assert_close(tiny_output(model, inputs), expected_sparse, rtol=1e-4, atol=1e-4)
    learned = {key: value for key, value in model.named_parameters() if ".sparse_hopfield." in key}
    assert len(learned) == 2 * len(attention_sites(model)) >= 4
    with torch.no_grad():
        for parameter in learned.values():
            parameter.add_(torch.randn_like(parameter))

    model.save_pretrained(tmp_path)
    loaded = auto_class(name).from_pretrained(tmp_path)
    assert type(loaded) is type(model) and type(loaded.config) is type(model.config)
    assert loaded.config.sparse_hopfield == SparseHopfieldConfig.from_dict(LEARNED)
    state = loaded.state_dict()
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
    torch.testing.assert_close(tiny_output(loaded, inputs), tiny_output(model, inputs))
    assert loaded.config.to_dict().keys() == model.config.to_dict().keys()

    back = to_dense(loaded)
    assert type(back) is getattr(transformers, class_name) and back.config.model_type == family
    assert back.state_dict().keys() == weights.keys()
    assert all(torch.equal(value, weights[key]) for key, value in back.state_dict().items())
    torch.testing.assert_close(tiny_output(back, inputs), expected_dense, rtol=1e-4, atol=1e-4)
    again = tmp_path / "dense"
    back.save_pretrained(again)
    saved = json.loads((again / "config.json").read_text())
    assert saved["model_type"] == family and not {"sparse_hopfield", "auto_map", "base_model_type"} & saved.keys()
    torch.testing.assert_close(
        tiny_output(auto_class(name).from_pretrained(again), inputs), expected_dense, rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("name", ["llama", "bloom", "mixtral"])
def test_a_model_that_is_sparse_by_name_comes_back_sparse(name, tmp_path):
    model = tiny_model(name, NAME, sparse_hopfield={"alpha": 1.5, "layers": [1]})
    family, class_before = model.config, type(model)
    model.save_pretrained(tmp_path)
    assert model.config is family and type(model) is class_before, "saving leaves the model as it was"
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "sparse_hopfield"
    inputs = tiny_inputs(name)
    for cls in (auto_class(name), class_before):
        loaded = cls.from_pretrained(tmp_path)
        torch.testing.assert_close(tiny_output(loaded, inputs), tiny_output(model, inputs))


def test_half_precision_comes_back_bit_for_bit(tmp_path):
    model = to_sparse_hopfield(tiny_model("llama").to(torch.bfloat16), LEARNED)
    model.save_pretrained(tmp_path)
    loaded = auto_class("llama").from_pretrained(tmp_path)
    state = loaded.state_dict()
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
    assert {value.dtype for value in state.values()} == {torch.bfloat16}


@pytest.mark.parametrize("model_type", ["swin", "mixtral", "qwen2_moe", "bert", "granite_swa"])
def test_there_and_back_from_a_loaded_model(model_type, tmp_path):
    """Of the first three the weights have other names in checkpoints; transformers keeps the way it has read them."""
    tiny_family(model_type).save_pretrained(tmp_path / "dense")
    dense = AutoModel.from_pretrained(tmp_path / "dense")
    weights = copy.deepcopy(dense.state_dict())
    model = to_sparse_hopfield(dense, {"alpha": 1.5})
    assert str(model.config.model_type) == "sparse_hopfield"
    model.save_pretrained(tmp_path / "sparse")
    loaded = AutoModel.from_pretrained(tmp_path / "sparse")
    assert all(torch.equal(loaded.state_dict()[name], value) for name, value in weights.items())
    for number, back in enumerate((to_dense(loaded), to_dense(model))):
        back.save_pretrained(tmp_path / f"again{number}")
        files = [load_file(tmp_path / name / "model.safetensors") for name in ("dense", f"again{number}")]
        assert files[0].keys() == files[1].keys()
        assert all(torch.equal(value, files[1][name]) for name, value in files[0].items())
        assert json.loads((tmp_path / f"again{number}" / "config.json").read_text())["model_type"] == model_type


def test_copies_of_the_configuration_are_converted_too():
    """The two small encoders of CANINE are no models, but have a configuration of their own."""
    model = to_sparse_hopfield(tiny_family("canine"), {"alpha": 1.5})
    sites = attention_sites(model)
    assert len(sites) == 4 and all(site.module.sparse_hopfield()[1] == 1.5 for site in sites)
    assert not any(hasattr(site.module, "sparse_hopfield") for site in attention_sites(to_dense(model)))


def test_composite_model_by_named_part(tmp_path):
    inputs = tiny_inputs("llava")
    model = to_sparse_hopfield(tiny_model("llava"), {"layers": ["vision_tower"]})
    reference = tiny_model("llava", {"vision_config": NAME, "text_config": "sdpa"})
    torch.testing.assert_close(tiny_output(model, inputs), tiny_output(reference, inputs), rtol=1e-4, atol=1e-4)
    model.save_pretrained(tmp_path)
    loaded = auto_class("llava").from_pretrained(tmp_path)
    torch.testing.assert_close(tiny_output(loaded, inputs), tiny_output(model, inputs))
    bart = to_sparse_hopfield(tiny_model("bart"), {"layers": ["decoder"], "overrides": {"encoder_attn": {"steps": 2}}})
    assert bart.model.encoder.layers[0].self_attn.sparse_hopfield is None
    assert bart.model.decoder.layers[0].self_attn.sparse_hopfield.steps == 1
    assert bart.model.decoder.layers[0].encoder_attn.sparse_hopfield.steps == 2


def test_conversion_touches_no_other_model():
    config = transformers.BertConfig(**SPECIFICATIONS["bert"][2])
    one, other = (transformers.BertForMaskedLM(config).eval() for _ in range(2))
    expected = tiny_output(other, tiny_inputs("bert"))
    to_sparse_hopfield(one)
    assert type(config) is transformers.BertConfig and config._attn_implementation == "sdpa"
    torch.testing.assert_close(tiny_output(other, tiny_inputs("bert")), expected)


def test_settings_of_the_configuration_are_kept():
    model = tiny_model("bert", NAME, sparse_hopfield={"alpha": 1.25})
    assert to_sparse_hopfield(model).config.sparse_hopfield.alpha == 1.25


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"layers": [9]}, "BertForMaskedLM has no attention layer 9"),
        ({"beta": [1.0] * 3}, "beta has 3 values"),
        ({"alhpa": 1.5}, "unknown keys"),
    ],
)
def test_a_model_stays_as_it_was_if_conversion_fails(settings, message):
    model = tiny_model("bert")
    config, before = model.config, model.config.to_dict()
    expected = tiny_output(model, tiny_inputs("bert"))
    with pytest.raises(ValueError, match=message):
        to_sparse_hopfield(model, settings)
    assert type(model) is transformers.BertForMaskedLM and model.config is config and config.to_dict() == before
    assert all(module.config is config for module in model.modules() if hasattr(module, "config"))
    assert not any("sparse_hopfield" in name for name, _ in model.named_modules())
    torch.testing.assert_close(tiny_output(model, tiny_inputs("bert")), expected)


def test_what_cannot_be_converted_is_refused():
    with pytest.raises(TypeError, match="takes a PreTrainedModel, got Linear"):
        to_sparse_hopfield(nn.Linear(2, 2))
    model = to_sparse_hopfield(tiny_model("bert"))
    with pytest.raises(ValueError, match="SparseHopfieldBertForMaskedLM is converted already"):
        to_sparse_hopfield(model)
    with pytest.raises(ValueError, match="BertForMaskedLM is dense already"):
        to_dense(tiny_model("bert"))
    with pytest.raises(TypeError, match="to_dense takes a PreTrainedModel"):
        to_dense(nn.Linear(2, 2))
    model = tiny_model("bert")
    model.config.quantization_config = {"quant_method": "bitsandbytes"}
    with pytest.raises(ValueError, match="BertForMaskedLM is quantised"):
        to_sparse_hopfield(model)


def test_resize_token_embeddings(tmp_path):
    model = to_sparse_hopfield(tiny_model("llama"), LEARNED)
    model.resize_token_embeddings(120)
    model.save_pretrained(tmp_path)
    assert auto_class("llama").from_pretrained(tmp_path).get_input_embeddings().num_embeddings == 120


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_a_converted_base_model_returns_its_weights(name):
    """transformers records attentions by class, and registers a class when a model of it is built."""
    model = to_sparse_hopfield(tiny_model(name).base_model)
    attentions = model(**tiny_inputs(name), output_attentions=True).attentions
    assert len(attentions) == 2 and all((weights == 0).any() for weights in attentions)
