# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The attention function of the kernel, under a name of its own in transformers' registry, against the package's own."""

import logging
import threading

import pytest
import torch
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from hf_sparse_hopfield import kernel_attention, retrieve
from hf_sparse_hopfield.kernel_attention import flash_attn_forward

from .tiny_models import PATCHED, SPECIFICATIONS, padded, rows_that_count, tiny_inputs, tiny_model, tiny_output


ONE = {"alpha": 1.5, "beta": 2.0}
PER_HEAD = {"alpha": [1.2, 1.5, 1.8, 2.0], "beta": [1.0, 2.0, 0.5, 1.5], "steps": 2}
NAME = "kernel_attention"
FAMILIES = sorted(SPECIFICATIONS.keys() - {*PATCHED, "mixtral", "marian"})  # these attend as llama and bart do


@pytest.fixture(autouse=True, scope="module")
def _registered():
    """As transformers registers a kernel: with the masks of SDPA."""
    AttentionInterface.register(NAME, flash_attn_forward)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    yield
    del AttentionInterface._global_mapping[NAME], AttentionMaskInterface._global_mapping[NAME]


def both(name: str, settings: dict | None = ONE) -> tuple[nn.Module, nn.Module]:
    """The same model with the package's attention and with the kernel's."""
    changes = {} if settings is None else {"sparse_hopfield": settings}
    package, kernel = (tiny_model(name, attention, **changes) for attention in ("sparse_hopfield", NAME))
    for part in kernel.config.sub_configs:  # a kernel does not see the configuration around that of a module
        getattr(kernel.config, part).sparse_hopfield = settings
    return package, kernel


@pytest.mark.parametrize(
    ("name", "settings"),
    [*(pytest.param(name, ONE, id=name) for name in FAMILIES), ("llama", PER_HEAD), ("t5", PER_HEAD)],
)
@torch.no_grad()
def test_equals_the_package(name, settings):
    package, kernel = both(name, settings)
    cases = [tiny_inputs(name)]
    if "input_ids" in cases[0]:
        cases += [padded(name, left=True), padded(name, left=False)]
    for inputs in cases:
        expected, found = (rows_that_count(tiny_output(model, inputs), inputs) for model in (package, kernel))
        torch.testing.assert_close(found, expected)
    dense = rows_that_count(tiny_output(tiny_model(name, "eager"), inputs), inputs)
    assert not torch.allclose(found, dense, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", ["llama", "mistral", "gpt_oss"])
def test_generates_like_the_package(name, cache):
    options = {"max_new_tokens": 6, "do_sample": False, "cache_implementation": cache, "disable_compile": True}
    expected, found = (model.generate(**padded(name, left=True), **options) for model in both(name))
    assert torch.equal(found, expected)


def test_trains_like_the_package():
    inputs = tiny_inputs("llama")
    gradients = []
    for model in both("llama", PER_HEAD):
        with torch.inference_mode():
            model(**inputs)  # what it keeps must not be a tensor that has no gradients
        model.train()(**inputs, labels=inputs["input_ids"]).loss.backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    torch.testing.assert_close(gradients[1], gradients[0])
    assert all(gradient.abs().sum() > 0 for gradient in gradients[1])


def test_drops_weights():
    module = nn.Module()
    vectors = torch.randn(3, 1, 2, 7, 4)
    with torch.random.fork_rng():
        found = flash_attn_forward(module, *vectors, dropout=0.5)[0]
    expected = retrieve(*vectors, is_causal=True, dropout=0.5)
    assert torch.equal(found, expected.transpose(1, 2))
    assert not torch.equal(found, flash_attn_forward(module, *vectors)[0])


@torch.no_grad()
def test_returns_weights():
    package, kernel = both("llama")
    inputs = padded("llama", left=True)
    expected, found = (model(**inputs, output_attentions=True).attentions for model in (package, kernel))
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(found[0][1].sum(-1), torch.ones(4, 9))


@pytest.mark.parametrize("told_by", ["cu_seq_lens", "seq_idx"])
@torch.no_grad()
def test_packed_sequences_see_only_themselves(told_by):
    _, kernel = both("llama")
    tokens = tiny_inputs("llama", batch=1)["input_ids"]
    starts = torch.tensor([0, 4, 9], dtype=torch.int32)
    packing = {"seq_idx": torch.tensor([[0] * 4 + [1] * 5])}
    if told_by == "cu_seq_lens":
        packing = {"cu_seq_lens_q": starts, "cu_seq_lens_k": starts, "max_length_q": 5, "max_length_k": 5}
    positions = torch.tensor([[*range(4), *range(5)]])
    found = kernel(tokens, position_ids=positions, use_cache=False, **packing).logits
    # without positions, transformers makes no mask for them
    found_alone = flash_attn_forward(
        nn.Module(), *torch.arange(144.0).view(1, 1, 9, 16).expand(3, -1, -1, -1, -1), **packing
    )
    assert torch.equal(found_alone[0][:, 4], torch.arange(64.0, 80.0)[None, None])
    alone = [kernel(part).logits for part in tokens.split([4, 5], 1)]
    torch.testing.assert_close(found, torch.cat(alone, 1))


@torch.no_grad()
def test_settings_of_layers():
    settings = {"alpha": 1.5, "layers": [1], "overrides": {1: {"beta": 3.0}}}
    package, kernel = both("llama", settings)
    inputs = tiny_inputs("llama")
    torch.testing.assert_close(tiny_output(kernel, inputs), tiny_output(package, inputs))
    attentions = kernel(**inputs, output_attentions=True).attentions
    visible = torch.ones(9, 9).tril().bool()
    assert (attentions[0][..., visible] > 0).all() and (attentions[1][..., visible] == 0).any()


@torch.no_grad()
def test_new_settings_take_effect_and_old_ones_cannot_be_changed():
    _, kernel = both("llama")
    inputs = tiny_inputs("llama")
    before = tiny_output(kernel, inputs)
    with pytest.raises(TypeError, match="cannot be changed"):
        kernel.config.sparse_hopfield["alpha"] = 2.0
    kernel.config.sparse_hopfield = {"alpha": 2.0, "beta": 2.0}
    assert not torch.equal(tiny_output(kernel, inputs), before)
    kernel.config.sparse_hopfield = ONE
    assert torch.equal(tiny_output(kernel, inputs), before)
    assert kernel.config.to_dict()["sparse_hopfield"] == {**kernel.config.sparse_hopfield, **ONE}


def test_compiles_in_one_graph():
    _, kernel = both("llama", PER_HEAD)
    inputs = padded("llama", left=True)
    with torch.no_grad():
        expected = tiny_output(kernel, inputs)
        compiled = torch.compile(kernel, fullgraph=True, backend="eager")
        torch.testing.assert_close(tiny_output(compiled, inputs), expected)


@pytest.fixture
def warnings(monkeypatch, caplog):
    """A function that runs a model twice and returns the number of warnings, as in a process that has not warned yet."""

    def count(settings: dict | None, train: bool = False) -> int:
        monkeypatch.setattr(kernel_attention, "_said", threading.Lock())
        caplog.clear()
        _, kernel = both("llama", settings)
        with torch.no_grad(), caplog.at_level(logging.WARNING):
            kernel.train(train)(**tiny_inputs("llama"))
            kernel(**tiny_inputs("llama"))
        return sum("Uncalibrated" in message for message in caplog.messages)

    return count


def test_warns_once_of_a_beta_that_nobody_chose(warnings):
    assert warnings(None) == warnings({"alpha": 1.5}) == warnings({"alpha": [1.0, 1.0, 1.5, 1.0]}) == 1
    assert warnings(ONE) == warnings(PER_HEAD) == warnings({"alpha": 1.0}) == 0
    assert warnings(None, train=True) == 0


@torch.no_grad()
def test_the_defaults_are_those_of_the_package():
    package, kernel = both("llama", None)
    inputs = tiny_inputs("llama")
    torch.testing.assert_close(tiny_output(kernel, inputs), tiny_output(package, inputs))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layers": ["decoder"]}, r"LlamaAttention has sparse_hopfield settings with the layers \['decoder'\]"),
        ({"learn_alpha": True, "learn_beta": True}, "with learn_alpha=True and learn_beta=True"),
        ({"alpha": 3.0}, "alpha must be in"),
        ({"gamma": 1.0}, "unknown keys"),
        ({"alpha": [1.5, 1.5]}, "alpha of shape"),
        ({"backend": "native_double"}, "native_double"),
    ],
)
def test_refuses_settings_that_it_cannot_honour(settings, message):
    kernel = tiny_model("llama", NAME, sparse_hopfield=settings)
    with pytest.raises(ValueError, match=message):
        kernel(**tiny_inputs("llama"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sinks": torch.zeros(1)}, r"Module passes \['sinks'\] to its attention, which this kernel does not know"),
        ({"sliding_window": 3, "is_causal": False}, "sliding_window=3 without a mask and without causality"),
        ({"cu_seq_lens_q": torch.tensor([0, 3, 7])}, "the batch has 2 rows"),
        ({"seq_idx": torch.zeros(2, 5, dtype=torch.long)}, "segments of queries"),
    ],
)
def test_refuses_arguments_that_it_does_not_know(arguments, message):
    with pytest.raises(ValueError, match=message):
        flash_attn_forward(nn.Module().train(), *torch.randn(3, 2, 2, 7, 4), **arguments)


def test_a_layer_without_an_index_has_no_settings_by_index():
    module = nn.Module()
    module.config = type("Config", (), {"sparse_hopfield": {"layers": [0]}})()
    with pytest.raises(ValueError, match="with the index of the layer of Module"):
        flash_attn_forward(module, *torch.randn(3, 1, 2, 7, 4))
