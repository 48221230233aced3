# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Which keyword arguments the eager attention of a class reads."""

import pytest
import torch
from torch import nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.gemma2.modeling_gemma2 import Gemma2Attention
from transformers.models.llama.modeling_llama import LlamaAttention
from transformers.models.qwen2_5_omni.modeling_qwen2_5_omni import DiTAttention

from hf_sparse_hopfield.integration.keywords import ignored_keyword, read_keywords

from ..tiny_models import tiny_model


STATES = {"module", "query", "key", "value", "attention_mask"}


def passed_on_to(module, query, *, slopes=None, unused=None, **rest):
    return query * slopes + (0 if "offset" in rest else 1)


def eager_attention_forward(module, query, key, value, attention_mask, scaling, window=None, **kwargs):
    bias = kwargs.get("bias", kwargs["default_bias"])
    return passed_on_to(module, query + bias + kwargs.pop("more"), **kwargs) * scaling


def opaque_attention_forward(module, query, key, value, attention_mask, **kwargs):
    return [value for name, value in kwargs.items()]


class OwnAttention(nn.Module):
    def forward(self, states, **kwargs):
        function = ALL_ATTENTION_FUNCTIONS.get_interface("sparse_hopfield", eager_attention_forward)
        return function(self, states, states, states, None, **kwargs)


class OpaqueAttention(nn.Module):
    def forward(self, states, **kwargs):
        function = ALL_ATTENTION_FUNCTIONS.get_interface("sparse_hopfield", opaque_attention_forward)
        return function(self, states, states, states, None, **kwargs)


class Inherits(OwnAttention):
    pass


def test_what_eager_attention_reads():
    assert read_keywords(LlamaAttention) - STATES == {"scaling", "dropout"}
    assert read_keywords(Gemma2Attention) - STATES == {"scaling", "dropout", "softcap"}
    expected = {"module", "query", "scaling", "bias", "default_bias", "more", "slopes", "offset"}
    assert read_keywords(OwnAttention) == read_keywords(Inherits) == expected


def test_where_it_cannot_be_told_only_what_every_model_passes_is_ignored():
    for cls in (nn.Module, OpaqueAttention, DiTAttention):
        names = ("max_length_q", "num_items_in_batch", "use_cache", "vision_feature_layer", "alibi_slopes")
        ignored = [name for name in names if ignored_keyword(cls, name)]
        known = read_keywords(cls) is not None
        assert ignored == list(names if known else names[:3]), cls


def test_a_keyword_that_is_read_and_unknown_is_refused():
    states = torch.randn(1, 2, 5, 4)
    for cls in (OwnAttention, Inherits):
        cls()(states, unused=torch.ones(1), window=3, anything="else")
        cls()(states, slopes=None)
        for name in ("slopes", "offset", "bias", "more"):
            with pytest.raises(ValueError, match=rf"{cls.__name__} passes \['{name}'\] to its attention"):
                cls()(states, **{name: torch.ones(1)})


def test_what_we_honour_is_honoured_although_eager_attention_does_not_read_it():
    """Sliding windows and packed sequences are in the mask of eager attention; the attention function gets them, too."""
    module = tiny_model("llama", "sparse_hopfield").model.layers[0].self_attn
    assert all(
        ignored_keyword(type(module), name) for name in ("sliding_window", "softcap", "cu_seq_lens_q", "seq_idx")
    )
    function = ALL_ATTENTION_FUNCTIONS["sparse_hopfield"]
    query, key, value = torch.randn(3, 1, 4, 6, 8).unbind()
    plain, _ = function(module, query, key, value, None)
    for change in (
        {"sliding_window": 2},
        {"softcap": 0.1},
        {"cu_seq_lens_q": torch.tensor([0, 3, 6])},
        {"seq_idx": torch.tensor([[0, 0, 0, 1, 1, 1]])},
    ):
        assert not torch.allclose(function(module, query, key, value, None, **change)[0], plain)
