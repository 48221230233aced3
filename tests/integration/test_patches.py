# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Attention classes that compute softmax themselves."""

import copy
import pickle
import subprocess
import sys
from contextlib import nullcontext

import pytest
import torch
from transformers import BigBirdConfig, BigBirdModel

from hf_sparse_hopfield import to_sparse_hopfield
from hf_sparse_hopfield.integration.binding import LayerRetrieval
from hf_sparse_hopfield.integration.patches import patch
from hf_sparse_hopfield.observation import OwnSettings, observed

from ..tiny_families import tiny_family
from ..tiny_models import padded, rows_that_count, tiny_inputs, tiny_model, tiny_output


def test_leaving_a_family_that_is_not_on_the_registry():
    inputs = padded("gptj", left=True)
    expected = tiny_output(tiny_model("gptj"), inputs)
    for model in (tiny_model("gptj", "sparse_hopfield"), tiny_model("gptj", "eager")):
        model.set_attn_implementation("sparse_hopfield")
        assert (tiny_output(model, inputs) - expected).abs().max() > 1e-2
        model.set_attn_implementation("sdpa")
        assert model.config._attn_implementation == "eager", "its masks must fit the attention class it was made with"
        torch.testing.assert_close(
            rows_that_count(tiny_output(model, inputs), inputs),
            rows_that_count(expected, inputs),
            rtol=1e-4,
            atol=1e-5,
        )


def test_several_steps_are_refused_where_keys_are_out_of_reach():
    with pytest.raises(
        ValueError, match=r"BloomForCausalLM, layer 'transformer.h.0.self_attention'.*steps=2.*Use steps=1"
    ):
        tiny_model("bloom", "sparse_hopfield", sparse_hopfield={"steps": 2})


@pytest.mark.parametrize("name", ["gpt_neo", "gptj", "bloom", "mpnet"])
def test_masked_scores_give_finite_gradients(name):
    model = tiny_family("gpt_neo") if name == "gpt_neo" else tiny_model(name)
    model = to_sparse_hopfield(model, {"alpha": 1.5, "learn_beta": True, "learn_alpha": True})
    inputs = tiny_inputs("llama", length=12)
    direction = torch.randn(model(**inputs)[0].shape[-1])

    def value():
        return (model(**inputs)[0].double() @ direction.double()).sum()

    value().backward()
    learned = {name: value.grad for name, value in model.named_parameters() if ".sparse_hopfield." in name}
    assert all(gradient.isfinite().all() and gradient.abs().sum() > 0 for gradient in learned.values())
    layer = next(module for module in model.modules() if isinstance(module, LayerRetrieval))
    values, step = layer.log_beta, 1e-2
    with torch.no_grad():
        values[0] += step
        above = value()
        values[0] -= 2 * step
        below = value()
    assert values.grad[0].item() == pytest.approx((above - below).item() / (2 * step), rel=0.05)


def test_a_class_is_wrapped_once_and_its_dense_instances_are_unaffected():
    dense = tiny_model("mpnet")
    expected = tiny_output(dense, tiny_inputs("mpnet"))
    sparse = to_sparse_hopfield(copy.deepcopy(dense), {"beta": 5.0})
    cls = type(next(module for module in sparse.modules() if hasattr(module, "sparse_hopfield")))
    wrapped = cls.forward
    patch(cls)
    assert cls.forward is wrapped
    torch.testing.assert_close(tiny_output(dense, tiny_inputs("mpnet")), expected)
    assert not torch.allclose(tiny_output(sparse, tiny_inputs("mpnet")), expected, atol=1e-4)


def test_a_process_that_unpickles_a_model_patches_its_classes(tmp_path):
    model = to_sparse_hopfield(tiny_model("bloom"), {"beta": 5.0})
    inputs = tiny_inputs("bloom")
    (tmp_path / "model").write_bytes(pickle.dumps((model, inputs, tiny_output(model, inputs))))
    code = (
        "import pickle, sys, torch\n"
        "model, inputs, expected = pickle.load(open(sys.argv[1], 'rb'))\n"
        "torch.testing.assert_close(model(**inputs)[0], expected)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "model")], check=True)


def test_big_bird_keeps_its_settings_when_it_changes_its_attention():
    config = BigBirdConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=32, block_size=4
    )
    model = to_sparse_hopfield(BigBirdModel(config).eval(), {"alpha": 1.5, "beta": 3.0})
    with torch.no_grad():
        model(input_ids=torch.arange(12)[None])  # too short for blocks: the attention becomes a full one
    attention = model.encoder.layer[0].attention.self
    assert type(attention).__name__ == "BigBirdSelfAttention"
    assert attention.sparse_hopfield() == (3.0, 1.5)


@pytest.mark.parametrize("way", ["plain", "observed", pytest.param("compiled", marks=pytest.mark.slow)])
def test_a_forward_that_replaced_no_softmax_raises(way):
    """By construction: whatever a patched attention does instead of a softmax, its result is not passed on as sparse."""
    model = to_sparse_hopfield(tiny_family("ibert", quant_mode=True))
    tokens = torch.randint(5, 90, (1, 8))
    run = torch.compile(model, backend="eager") if way == "compiled" else model
    with observed(model, OwnSettings()) if way == "observed" else nullcontext():
        with pytest.raises(RuntimeError, match=r"IBertSelfAttention \(layer .*\) .* result is dense"):
            run(tokens)
    torch._dynamo.reset()


def test_checkpointing_and_parts_that_replace_do_not_raise():
    model = to_sparse_hopfield(tiny_model("bloom"), {"beta": 2.0}).train()
    model.gradient_checkpointing_enable()
    inputs = tiny_inputs("bloom")
    model(**inputs, labels=inputs["input_ids"], use_cache=False).loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
