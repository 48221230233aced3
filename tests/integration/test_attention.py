# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The attention by name: settings, masks, score modifiers, weights."""

from unittest import mock

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoModelForCausalLM
from transformers.cache_utils import StaticCache

from hf_sparse_hopfield import SparseHopfieldConfig, retrieve
from hf_sparse_hopfield.integration.attention import sparse_hopfield_attention_forward
from hf_sparse_hopfield.integration.sites import attention_sites

from ..tiny_models import (
    CAUSAL,
    PATCHED,
    SPECIFICATIONS,
    padded,
    rows_that_count,
    tiny_config,
    tiny_inputs,
    tiny_model,
    tiny_output,
)
from .eager_oracle import entmax_for_softmax


NAME = "sparse_hopfield"
REGISTRY = [name for name in SPECIFICATIONS if name not in PATCHED]


@pytest.mark.parametrize("alpha", [2.0, 1.5])
@pytest.mark.parametrize("name", SPECIFICATIONS)
def test_equals_eager_attention_with_entmax(name, alpha):
    sparse = tiny_model(name, NAME, sparse_hopfield={"alpha": alpha})
    eager = tiny_model(name, "eager")
    cases = [tiny_inputs(name)]
    if "input_ids" in cases[0]:
        cases += [padded(name, left=True), padded(name, left=False)]
    for inputs in cases:
        with torch.no_grad():
            result = tiny_output(sparse, inputs)
            dense = tiny_output(eager, inputs)
            with entmax_for_softmax(alpha):
                expected = tiny_output(eager, inputs)
        torch.testing.assert_close(
            rows_that_count(result, inputs), rows_that_count(expected, inputs), rtol=1e-3, atol=2e-3
        )
        assert (result - dense).abs().max() > 1e-2, "dense and sparse must differ"


@pytest.mark.parametrize("name", SPECIFICATIONS)
def test_weights_are_returned_sparse_and_sum_to_one(name):
    model = tiny_model(name, NAME)
    with torch.no_grad():
        output = model(**tiny_inputs(name), output_attentions=True)
    kinds = ("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions")
    weights = [layer for kind in kinds for layer in (getattr(output, kind, None) or ())]
    assert len(weights) >= 2
    for layer in weights:
        assert (layer == 0).float().mean() > 0.1
        if name != "gpt_oss":  # its sinks take a share
            torch.testing.assert_close(layer.sum(-1), torch.ones_like(layer.sum(-1)))


def test_gradients_equal_those_of_eager_attention_with_entmax():
    inputs = tiny_inputs("llama")
    gradients = []
    for implementation in (NAME, "eager"):
        model = tiny_model("llama", implementation)
        with entmax_for_softmax():
            model(**inputs, labels=inputs["input_ids"]).loss.backward()
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][name], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", REGISTRY)
def test_settings_reach_every_layer(name):
    settings = {"alpha": 1.5, "beta": 2.0, "steps": 2, "tolerance": 1e-3, "backend": "reference"}
    model = tiny_model(name, NAME, sparse_hopfield=settings)
    sites = attention_sites(model)
    assert len(sites) >= 2
    for site in sites:
        retrieval = site.module.sparse_hopfield
        assert (retrieval.steps, retrieval.tolerance, retrieval.backend) == (2, 1e-3, "reference")
        assert retrieval() == (2.0, 1.5) and retrieval.name == site.name
    assert torch.isfinite(tiny_output(model, tiny_inputs(name))).all()


def test_by_name_in_every_way(tmp_path):
    inputs = tiny_inputs("llama")
    made = tiny_model("llama", NAME)
    expected = tiny_output(made, inputs)
    dense = tiny_model("llama")
    assert (tiny_output(dense, inputs) - expected).abs().max() > 1e-2
    dense.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation=NAME)
    torch.testing.assert_close(tiny_output(loaded, inputs), expected)
    from_config = AutoModelForCausalLM.from_config(tiny_config("llama"), attn_implementation=NAME)
    from_config.load_state_dict(dense.state_dict())
    torch.testing.assert_close(tiny_output(from_config.eval(), inputs), expected)
    dense.set_attn_implementation(NAME)
    torch.testing.assert_close(tiny_output(dense, inputs), expected)
    dense.set_attn_implementation("sdpa")
    assert not any("sparse_hopfield" in module for module, _ in dense.named_modules())
    assert (tiny_output(dense, inputs) - expected).abs().max() > 1e-2


def test_settings_in_the_configuration_mean_this_attention():
    model = tiny_model("bert", sparse_hopfield=SparseHopfieldConfig(alpha=1.5))
    assert model.config._attn_implementation == NAME
    assert tiny_model("bert", "sdpa", sparse_hopfield={}).config._attn_implementation == "sdpa"


def test_settings_changed_later_are_not_ignored():
    for name in ("llama", "gptj"):
        model, inputs = tiny_model(name, NAME), tiny_inputs(name)
        expected = tiny_output(tiny_model(name, NAME, sparse_hopfield={"alpha": 1.5}), inputs)
        model.config.sparse_hopfield = {"alpha": 1.5}
        with pytest.raises(RuntimeError, match="set_attn_implementation"):
            model(**inputs)
        model.set_attn_implementation(NAME)
        torch.testing.assert_close(tiny_output(model, inputs), expected)


def test_composite_model_by_part():
    model = tiny_model("llava", {"text_config": NAME, "vision_config": "sdpa"})
    assert {site.name.split(".")[1] for site in attention_sites(model) if site.is_sparse} == {"language_model"}
    assert not hasattr(model.model.vision_tower.encoder.layers[0].self_attn, NAME)
    model.set_attn_implementation({"vision_config": NAME, "text_config": "eager"})
    assert {site.name.split(".")[1] for site in attention_sites(model) if site.is_sparse} == {"vision_tower"}
    own = tiny_config("llava")
    own.sparse_hopfield, own.vision_config.sparse_hopfield = {"alpha": 1.5}, {"alpha": 1.25}
    model = type(model)._from_config(own, attn_implementation=NAME)
    assert model.model.vision_tower.encoder.layers[0].self_attn.sparse_hopfield.alpha == 1.25
    assert model.model.language_model.layers[0].self_attn.sparse_hopfield.alpha == 1.5


@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt_oss", "bloom", "bart"])
def test_dense_layers_in_a_mixture_equal_the_dense_model(name):
    inputs = tiny_inputs(name)
    all_dense = tiny_model(name, NAME, sparse_hopfield={"alpha": 1.0})
    dense = tiny_model(name, "eager")
    torch.testing.assert_close(tiny_output(all_dense, inputs), tiny_output(dense, inputs), rtol=1e-4, atol=1e-5)
    mixed = tiny_model(name, NAME, sparse_hopfield={"layers": [1]})
    explicit = tiny_model(name, NAME, sparse_hopfield={"overrides": {0: {"alpha": 1.0}}})
    torch.testing.assert_close(tiny_output(mixed, inputs), tiny_output(explicit, inputs), rtol=1e-4, atol=1e-5)
    assert (tiny_output(mixed, inputs) - tiny_output(dense, inputs)).abs().max() > 1e-2


def test_packed_sequences_do_not_see_each_other():
    model = tiny_model("llama", NAME)
    a, b = (tiny_inputs("llama", batch=1, length=n, seed=n)["input_ids"] for n in (5, 7))
    together = torch.cat([a, b], 1)
    positions = torch.cat([torch.arange(5), torch.arange(7)])[None]
    expected = torch.cat([tiny_output(model, {"input_ids": x}) for x in (a, b)], 1)
    packed = tiny_output(model, {"input_ids": together, "position_ids": positions}, use_cache=False)
    torch.testing.assert_close(packed, expected)
    # As flash attention has them: no mask, cumulative lengths. Here for the attention function alone.
    starts = torch.tensor([0, 5, 12], dtype=torch.int32)
    query, key, value = torch.randn(3, 1, 4, 12, 8).unbind()
    module = model.model.layers[0].self_attn
    packed, _ = sparse_hopfield_attention_forward(
        module, query, key, value, None, cu_seq_lens_q=starts, cu_seq_lens_k=starts, max_length_q=7, max_length_k=7
    )
    for part in (slice(0, 5), slice(5, 12)):
        alone = retrieve(query[:, :, part], key[:, :, part], value[:, :, part], is_causal=True)
        torch.testing.assert_close(packed[:, part], alone.transpose(1, 2))


def test_four_dimensional_masks_of_the_user():
    model = tiny_model("llama", NAME)
    inputs = tiny_inputs("llama")
    length = inputs["input_ids"].shape[1]
    allowed = torch.ones(length, length, dtype=torch.bool).tril()
    prefix = allowed.clone()
    prefix[:4, :4] = True  # a prefix that sees itself in both directions
    causal, bidirectional = (
        tiny_output(model, inputs, attention_mask=mask[None, None].expand(2, 1, -1, -1)) for mask in (allowed, prefix)
    )
    torch.testing.assert_close(causal, tiny_output(model, inputs))
    assert (bidirectional - causal)[:, :3].abs().max() > 1e-2
    additive = torch.zeros(2, 1, length, length).masked_fill(~prefix, torch.finfo(torch.float32).min)
    torch.testing.assert_close(tiny_output(model, inputs, attention_mask=additive), bidirectional)


def test_prefill_of_a_static_cache_without_a_mask():
    model = tiny_model("llama", NAME)
    inputs = tiny_inputs("llama")
    cache = StaticCache(config=model.config, max_cache_len=16)
    torch.testing.assert_close(tiny_output(model, inputs, past_key_values=cache), tiny_output(model, inputs))


@pytest.mark.parametrize("name", CAUSAL)
def test_decoding_with_a_cache_equals_one_pass(name):
    model = tiny_model(name, NAME)
    tokens = tiny_inputs(name)["input_ids"]
    expected = tiny_output(model, {"input_ids": tokens})
    output = model(tokens[:, :4], use_cache=True)
    parts = [output.logits]
    for piece in (tokens[:, 4:7], tokens[:, 7:8], tokens[:, 8:]):  # several at once, then one by one
        output = model(piece, past_key_values=output.past_key_values, use_cache=True)
        parts.append(output.logits)
    torch.testing.assert_close(torch.cat(parts, 1), expected, rtol=1e-3, atol=1e-4)


def test_fully_masked_rows_are_finite_with_zero_gradients():
    for name in ("bert", "mpnet"):
        model = tiny_model(name, NAME)
        inputs = tiny_inputs(name)
        mask = torch.ones_like(inputs["input_ids"])
        mask[0] = 0
        output = model(**inputs, attention_mask=mask, output_attentions=True)
        assert all((layer[0] == 0).all() for layer in output.attentions)
        output.logits.sum().backward()
        assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def call(**kwargs):
    module = torch.nn.Module()
    query, key, value = torch.randn(3, 1, 2, 6, 4).unbind()
    return (query, key, value), sparse_hopfield_attention_forward(module, query, key, value, None, **kwargs)


def test_score_modifiers_are_honoured():
    bias, sinks = torch.randn(1, 2, 6, 6), torch.randn(2)
    for kwargs, meant in [
        ({}, {"is_causal": True}),
        ({"is_causal": False}, {}),
        ({"is_causal": False, "position_bias": bias}, {"bias": bias}),
        ({"softcap": 0.5, "scaling": 2.0}, {"is_causal": True, "softcap": 0.5, "scaling": 2.0}),
        ({"s_aux": sinks}, {"is_causal": True, "sinks": sinks}),
        ({"sliding_window": 2}, {"is_causal": True, "sliding_window": 2}),
        ({"scaling": torch.tensor(3.0)}, {"is_causal": True, "scaling": 3.0}),
    ]:
        states, (output, weights) = call(**kwargs, output_attentions=True)
        expected, expected_weights = retrieve(*states, **meant, return_weights=True)
        torch.testing.assert_close(output, expected.transpose(1, 2))
        torch.testing.assert_close(weights, expected_weights)
        assert call(**kwargs)[1][1] is None


def test_unknown_score_modifiers_are_refused():
    with pytest.raises(ValueError, match=r"Module passes \['alibi_slopes'\] to its attention"):
        call(alibi_slopes=torch.ones(2))
    call(alibi_slopes=None, output_hidden_states=True, use_cache=True)
    with pytest.raises(ValueError, match="sliding_window=2 without a mask"):
        call(sliding_window=2, is_causal=False)


def test_output_attentions_of_mixed_layers():
    model = tiny_model("llama", NAME, sparse_hopfield={"layers": [0]})
    weights = model(**tiny_inputs("llama"), output_attentions=True).attentions
    lower = torch.ones(9, 9, dtype=torch.bool).tril()
    assert (weights[0][..., lower] == 0).any() and (weights[1][..., lower] > 0).all()


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"alfa": 1}, "unknown keys"),
        ({"layers": [7]}, r"BertForMaskedLM has no attention layer 7.*layer indices \[0, 1\]"),
        ({"layers": ["decoder"]}, "has no attention layer 'decoder'"),
        ({"overrides": {3: {"alpha": 1.5}}}, "has no attention layer 3"),
        ({"beta": [1.0, 2.0]}, "layer 'bert.encoder.layer.0.attention.self'.*beta has 2 values, but num_heads=4"),
    ],
)
def test_bad_settings_name_the_model_and_the_layer(settings, message):
    with pytest.raises(ValueError, match=message):
        tiny_model("bert", NAME, sparse_hopfield=settings)
    model = tiny_model("bert")
    expected = tiny_output(model, tiny_inputs("bert"))
    model.config.sparse_hopfield = settings
    with pytest.raises(ValueError, match=message):
        model.set_attn_implementation(NAME)
    assert model.config._attn_implementation == "sdpa"
    torch.testing.assert_close(tiny_output(model, tiny_inputs("bert")), expected)


def test_an_attention_module_outside_of_a_model():
    config = tiny_config("llama")
    config._attn_implementation, config.sparse_hopfield = NAME, {"alpha": 1.5, "layers": [0]}
    from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRotaryEmbedding

    attention = LlamaAttention(config, layer_idx=0)
    states = torch.randn(1, 5, 32)
    positions = LlamaRotaryEmbedding(config)(states, torch.arange(5)[None])
    with pytest.raises(RuntimeError, match="LlamaAttention has no settings yet"):
        attention(states, positions, None)
    config.sparse_hopfield = {"alpha": 1.5}
    assert attention(states, positions, None)[0].shape == states.shape


def test_learned_alpha_and_beta_are_trained():
    model = tiny_model("llama", NAME, sparse_hopfield={"alpha": 1.5, "learn_alpha": True, "learn_beta": True})
    inputs = tiny_inputs("llama")
    model(**inputs, labels=inputs["input_ids"]).loss.backward()
    learned = {name: p for name, p in model.named_parameters() if "sparse_hopfield" in name}
    assert len(learned) == 4 and all(p.shape == (4,) and p.grad.abs().max() > 0 for p in learned.values())


def test_learned_parameters_missing_in_a_checkpoint_start_at_their_initial_values(tmp_path):
    tiny_model("llama").save_pretrained(tmp_path)
    config = tiny_config("llama", sparse_hopfield={"alpha": 1.5, "beta": 3.0, "learn_alpha": True, "learn_beta": True})
    model = AutoModelForCausalLM.from_pretrained(tmp_path, config=config)
    for layer in model.model.layers:
        torch.testing.assert_close(layer.self_attn.sparse_hopfield.beta, torch.full((4,), 3.0))
        torch.testing.assert_close(layer.self_attn.sparse_hopfield.alpha, torch.full((4,), 1.5))


class Devices(TorchDispatchMode):
    """The devices of all tensors that operators see, within the context."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.seen |= {x.device.type for x in tree_leaves((args, kwargs, result)) if isinstance(x, torch.Tensor)}
        return result


def test_a_call_copies_no_settings_to_the_device():
    """The meta device stands for a GPU: a tensor on the CPU would have to be copied there."""
    settings = {"alpha": [1.2, 1.4, 1.5, 1.8], "beta": [1.0, 2.0, 3.0, 4.0]}
    model = tiny_model("llama", NAME, sparse_hopfield=settings)
    assert not any("sparse_hopfield" in name for name in model.state_dict())
    module = model.to("meta").model.layers[0].self_attn
    query, key = torch.randn(2, 4, 9, 8, device="meta"), torch.randn(2, 2, 9, 8, device="meta")
    for mask in (None, torch.ones(2, 1, 1, 9, dtype=torch.int8, device="meta")):
        with Devices() as devices, mock.patch("torch.tensor", side_effect=AssertionError("numbers become a tensor")):
            sparse_hopfield_attention_forward(module, query, key, key, mask)
        assert devices.seen == {"meta"}
