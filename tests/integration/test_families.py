# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Every family by name: sparse in every attention layer, or refused. Nothing runs dense silently."""

import pytest
import torch
import transformers
from torch import nn
from transformers import AutoModel

from hf_sparse_hopfield import to_sparse_hopfield
from hf_sparse_hopfield.integration.families import NOT_SCORES, PATCHED, REFUSED, classify

from ..tiny_families import family_config, model_class_of
from ..tiny_models import sharpened
from .eager_oracle import entmax_for_softmax
from .families_table import TABLE, counted, model_types, render, sweep, sweep_one


# One of each kind of attention: text, vision, audio, time series; on the registry and not; swapped on the way; windows.
SOME = {
    **dict.fromkeys(
        ("albert", "gemma3_text", "modernbert", "mllama", "qwen2_vl", "clip", "dinov2", "hubert"), "registry"
    ),
    **dict.fromkeys(("deberta", "deberta-v2", "bloom", "falcon", "gptj", "gpt_neo", "codegen", "xlnet"), "patched"),
    **dict.fromkeys(("xlm", "blip", "fsmt", "roformer", "rembert", "openai-gpt", "swinv2", "layoutlmv3"), "patched"),
    **dict.fromkeys(("wavlm", "sew-d", "mpt", "prophetnet", "vits", "longformer", "led", "big_bird"), "patched"),
    **dict.fromkeys(("siglip", "sam", "longt5", "informer", "grounding-dino", "maskformer"), "registry and patched"),
    "detr": "registry",
    "convbert": "patched",
    "mamba": "no softmax attention",
    "yoso": "refused",
}


@pytest.mark.parametrize("model_type", SOME)
def test_some_families(model_type):
    row = sweep_one(model_type)
    assert (row.route, row.dense) == (SOME[model_type], "")
    if row.route != "refused":
        assert row.note == ""


# Text models that are not on the registry: here masks meet scores in the model's own code.
PATCHED_TEXT = (
    "big_bird bloom canine codegen deberta deberta-v2 falcon flaubert fsmt funnel gptj gpt_neo gpt_neox_japanese "
    "ibert led longformer luke megatron-bert mpnet mpt mvp openai-gpt prophetnet rembert roformer squeezebert xglm xlm xlnet"
).split()


@pytest.mark.parametrize("model_type", PATCHED_TEXT)
def test_patched_families_equal_their_eager_attention_with_entmax(model_type):
    states = {}
    for implementation in ("sparse_hopfield", "eager"):
        torch.manual_seed(0)
        model = model_class_of(model_type)._from_config(family_config(model_type), attn_implementation=implementation)
        states[implementation] = sharpened(model, 4.0).eval()
    tokens = torch.randint(5, 90, (2, 16))
    for left in (True, False, None):
        mask = torch.ones(2, 16, dtype=torch.long)
        if left is not None:
            mask[0, slice(0, 3) if left else slice(13, 16)] = 0
        inputs = {"input_ids": tokens, "attention_mask": mask}
        inputs |= {"decoder_input_ids": tokens[:, :6]} if states["eager"].config.is_encoder_decoder else {}
        with torch.no_grad():
            result = states["sparse_hopfield"](**inputs)[0]
            with entmax_for_softmax(dimensions=(3, 4, 5)):
                expected = states["eager"](**inputs)[0]
        rows = mask.bool() if result.shape[:2] == mask.shape else ...
        torch.testing.assert_close(result[rows], expected[rows], rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_all_families():
    rows = sweep()
    assert [row for row in rows if row.dense] == [], "softmax left dense without a reason"
    sparse, with_softmax = counted(rows)
    assert len(sparse) >= 0.95 * len(with_softmax)
    assert {row.model_type for row in rows if row.route == "refused"} == {
        *("autoformer", "mobilevitv2", "mra", "nystromformer", "reformer", "swiftformer", "yoso"),
    }
    assert TABLE.read_text(encoding="utf-8") == render(rows), "run python -m tests.integration.families_table"


def test_the_table_is_current():
    table = TABLE.read_text(encoding="utf-8")
    if f"transformers {transformers.__version__}. " not in table:
        pytest.skip("the table was made with another version of transformers")
    assert set(model_types()) <= {word.rstrip(":,") for word in table.split()}


@pytest.mark.parametrize("model_type", ["nystromformer", "mobilevitv2"])
def test_a_refused_family_names_the_layer_and_stays_as_it_was(model_type):
    config = family_config(model_type)
    with pytest.raises(ValueError, match="layer .*attention.* cannot retrieve sparsely: its attention"):
        AutoModel.from_config(config, attn_implementation="sparse_hopfield")
    model = model_class_of(model_type)(family_config(model_type))
    implementation = model.config._attn_implementation
    for attempt in (to_sparse_hopfield, lambda model: model.set_attn_implementation("sparse_hopfield")):
        with pytest.raises(ValueError, match="cannot retrieve sparsely: its attention"):
            attempt(model)
        assert type(model) is model_class_of(model_type) and model.config._attn_implementation == implementation


def test_a_class_with_a_known_base_is_known():
    from transformers.models.sam.modeling_sam import SamVisionSdpaAttention

    assert classify(SamVisionSdpaAttention).route == "patched"


def test_an_unknown_attention_class_is_refused():
    class HomeMadeAttention(nn.Module):
        def forward(self, states):
            return torch.softmax(states @ states.mT, -1) @ states

    kind = classify(HomeMadeAttention)
    assert kind.refused and "HomeMadeAttention computes its attention itself" in kind.reason
    assert classify(nn.Linear) is None and classify(nn.MultiheadAttention).route == "patched"


def test_the_tables_do_not_overlap():
    assert not set(PATCHED) & set(REFUSED) and not set(PATCHED) & set(NOT_SCORES)


def test_nn_multihead_attention_with_masks_and_weights():
    from hf_sparse_hopfield import retrieve
    from hf_sparse_hopfield.integration.families import Kind
    from hf_sparse_hopfield.integration.patches import SparseSoftmax
    from hf_sparse_hopfield.observation import HeadSettings

    torch.manual_seed(0)
    attention = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    states = 3 * torch.randn(2, 5, 8)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    with SparseSoftmax(HeadSettings(1.0, 2.0), Kind("patched"), "attention"), torch.no_grad():
        output, weights = attention(states, states, states, key_padding_mask=padding, average_attn_weights=False)
    query, key, value = (
        part.view(2, 5, 2, 4).transpose(1, 2)
        for part in nn.functional.linear(states, attention.in_proj_weight, attention.in_proj_bias).chunk(3, -1)
    )
    expected, expected_weights = retrieve(query, key, value, mask=~padding[:, None, None], return_weights=True)
    torch.testing.assert_close(weights, expected_weights)
    torch.testing.assert_close(output, attention.out_proj(expected.transpose(1, 2).flatten(2)))
    assert (weights[1, :, :, 3:] == 0).all() and (weights[0] == 0).any()
