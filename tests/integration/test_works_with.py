# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Works with the rest: generation, checkpointing, compilation, export, half precision, peft, accelerate, quantisation."""

import copy

import pytest
import torch
import transformers
from torch import nn

from hf_sparse_hopfield import to_sparse_hopfield

from ..tiny_models import CAUSAL, IMAGE_TOKEN, PATCHED, SPECIFICATIONS, tiny_inputs, tiny_model, tiny_output


NAME = "sparse_hopfield"
LEARNED = {"alpha": 1.5, "learn_alpha": True, "learn_beta": True}
GENERATES = [name for name in SPECIFICATIONS if name not in ("bert", "vit", "mpnet")]
STRATEGIES = {
    "greedy": {},
    "beam": {"num_beams": 3},
    "sampling": {"do_sample": True, "top_k": 20},
}


def prompt(name: str) -> dict[str, torch.Tensor]:
    inputs = tiny_inputs(name, length=5)
    inputs.pop("decoder_input_ids", None)
    return inputs


def generate(model: nn.Module, inputs: dict[str, torch.Tensor], **kwargs) -> torch.Tensor:
    torch.manual_seed(0)
    # An image token without an image would be an error.
    defaults = {"max_new_tokens": 8, "min_new_tokens": 8, "do_sample": False, "suppress_tokens": [IMAGE_TOKEN]}
    return model.generate(**inputs, **(defaults | kwargs))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", GENERATES)
def test_generate_with_caches_equals_without(name, strategy):
    model = tiny_model(name, NAME)
    inputs, options = prompt(name), STRATEGIES[strategy]
    expected = generate(model, inputs, use_cache=False, **options)
    assert torch.equal(generate(model, inputs, **options), expected), (
        "dynamic (and sliding, where a model has windows)"
    )
    if name not in ("whisper", *PATCHED):  # their generation has its own idea of static caches, or none
        options = options | {"cache_implementation": "static", "disable_compile": True}
        assert torch.equal(generate(model, inputs, **options), expected), "static"


@pytest.mark.parametrize("name", [*CAUSAL, "t5", "bart", "marian"])
def test_padding_changes_nothing(name):
    model = tiny_model(name, NAME)
    inputs = prompt(name)
    expected = generate(model, inputs)
    batch, length = inputs["input_ids"].shape
    padding = torch.zeros(batch, 3, dtype=torch.long)
    mask = torch.ones(batch, length, dtype=torch.long)
    if name in CAUSAL:  # on the left, as generation needs it
        padded = {
            "input_ids": torch.cat([padding, inputs["input_ids"]], 1),
            "attention_mask": torch.cat([padding, mask], 1),
        }
        assert torch.equal(generate(model, padded)[:, 3:], expected)
    else:
        padded = {
            "input_ids": torch.cat([inputs["input_ids"], padding], 1),
            "attention_mask": torch.cat([mask, padding], 1),
        }
        assert torch.equal(generate(model, padded), expected)


@pytest.mark.parametrize("name", [name for name in SPECIFICATIONS if name != "mpnet"])  # it has no checkpointing
def test_gradient_checkpointing_gives_equal_gradients(name):
    model = tiny_model(name, NAME, sparse_hopfield=LEARNED).train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    inputs, options = tiny_inputs(name), {"use_cache": False} if name in GENERATES else {}
    gradients = []
    for checkpointing in (False, True):
        if checkpointing:
            model.gradient_checkpointing_enable()
        model.zero_grad()
        torch.manual_seed(0)
        tiny_output(model, inputs, **options).pow(2).mean().backward()
        gradients.append({key: p.grad.clone() for key, p in model.named_parameters() if p.grad is not None})
    assert any("sparse_hopfield" in key for key in gradients[0])
    assert gradients[0].keys() == gradients[1].keys()
    for key, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][key], gradient)


# Tracing alone, which is where a graph would break; the code generator behind it is not ours.
@pytest.mark.parametrize(
    "name",
    [
        name if name in ("bert", "llama", "bloom") else pytest.param(name, marks=pytest.mark.slow)
        for name in SPECIFICATIONS
    ],
)
def test_compile_without_graph_breaks(name):
    model = tiny_model(name, NAME)
    inputs = tiny_inputs(name)
    with torch.no_grad():
        expected = tiny_output(model, inputs)
        compiled = torch.compile(model, fullgraph=True, backend="eager")
        torch.testing.assert_close(compiled(**inputs).logits, expected, rtol=1e-4, atol=1e-5)
    torch._dynamo.reset()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "llama", "bloom"])
def test_compile_with_the_code_generator(name):
    model = tiny_model(name, NAME)
    inputs = tiny_inputs(name)
    compiled = torch.compile(model, fullgraph=True)
    torch.testing.assert_close(compiled(**inputs).logits, tiny_output(model, inputs), rtol=1e-4, atol=1e-5)
    torch._dynamo.reset()


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "t5", "vit", "mpnet"])
def test_export(name):
    model = tiny_model(name, NAME)
    inputs = tiny_inputs(name)
    options = {"use_cache": False} if name in GENERATES else {}
    with torch.no_grad():
        exported = torch.export.export(model, (), kwargs={**inputs, **options}, strict=False).module()
        torch.testing.assert_close(
            exported(**inputs, **options).logits, tiny_output(model, inputs, **options), rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", SPECIFICATIONS)
def test_half_precision(name, dtype):
    model = tiny_model(name, NAME, sparse_hopfield=LEARNED)
    inputs = tiny_inputs(name)
    expected = tiny_output(model, inputs)
    half = copy.deepcopy(model).to(dtype)
    inputs = {key: value.to(dtype) if value.is_floating_point() else value for key, value in inputs.items()}
    result = tiny_output(half, inputs)
    assert result.dtype == dtype and torch.isfinite(result).all()
    result.float().pow(2).mean().backward()
    assert all(torch.isfinite(p.grad).all() for p in half.parameters() if p.grad is not None)
    if name != "mixtral" and name != "gpt_oss":  # a rounded router may choose other experts
        error = (result.float() - expected).abs().mean() / expected.abs().mean()
        assert error < (0.1 if dtype == torch.float16 else 0.4)


@pytest.mark.parametrize("name", ["bert", "llama", "t5", "bloom"])
def test_lora_saves_learned_beta_and_alpha(name, tmp_path):
    from peft import LoraConfig, PeftModel, get_peft_model

    base = to_sparse_hopfield(tiny_model(name), LEARNED)
    fresh = copy.deepcopy(base)
    targets = {
        "bert": ["query", "value"],
        "llama": ["q_proj", "v_proj"],
        "t5": ["q", "v"],
        "bloom": ["query_key_value"],
    }
    model = get_peft_model(base, LoraConfig(target_modules=targets[name], modules_to_save=[NAME], r=2))
    trained = [key for key, p in model.named_parameters() if p.requires_grad]
    assert any("log_beta" in key for key in trained) and any("lora_A" in key for key in trained)
    inputs = tiny_inputs(name)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.5)
    model(**inputs).logits.pow(2).mean().backward()
    optimizer.step()
    expected = model.eval()(**inputs).logits
    assert (expected - fresh(**inputs).logits).abs().max() > 1e-4
    model.save_pretrained(tmp_path)
    loaded = PeftModel.from_pretrained(fresh, tmp_path).eval()
    torch.testing.assert_close(loaded(**inputs).logits, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["bert", "llama", "gptj", "t5"])
def test_device_map_and_meta_device(name, tmp_path):
    from accelerate import init_empty_weights

    model = to_sparse_hopfield(tiny_model(name), LEARNED)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "sparse_hopfield" in key:
                parameter.add_(torch.randn_like(parameter))
    model.save_pretrained(tmp_path)
    inputs = tiny_inputs(name)
    auto = getattr(transformers, type(model).__name__.removeprefix("SparseHopfield"))
    loaded = auto.from_pretrained(tmp_path, device_map={"": "cpu"})
    torch.testing.assert_close(tiny_output(loaded, inputs), tiny_output(model, inputs))
    with init_empty_weights():
        empty = type(model)(copy.deepcopy(model.config))
    assert all(p.device.type == "meta" for p in empty.parameters())
    empty.load_state_dict(model.state_dict(), assign=True)
    empty.tie_weights()
    keys = {key for key, p in empty.named_parameters() if p.device.type == "meta"}
    assert not keys and not any("sparse_hopfield" in key for key in keys)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("name", ["bert", "llama", "bart", "mpnet"])
def test_dynamic_int8_quantisation(name):
    model = tiny_model(name, NAME)
    inputs = tiny_inputs(name)
    quantised = torch.ao.quantization.quantize_dynamic(copy.deepcopy(model), {nn.Linear}, dtype=torch.qint8)
    with torch.no_grad():
        output = quantised(**inputs, output_attentions=True)
    weights = getattr(output, "attentions", None) or output.decoder_attentions
    assert torch.isfinite(output.logits).all() and all((layer == 0).any() for layer in weights)
