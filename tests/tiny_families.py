# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""A tiny model of any model type in transformers, made from its default configuration without downloads.

Entries of the configuration that are sizes are recognised by their names; `OVERRIDES` covers the rest.
"""

import re
from typing import Any

import torch
import transformers
from transformers import PreTrainedConfig
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from .tiny_models import sharpened


WIDTH, HEADS, GROUPS, LAYERS, VOCABULARY, IMAGE, PATCH = 32, 4, 2, 2, 120, 32, 8

# The first rule whose pattern matches the whole name of an entry limits its value. Only integers are shrunk.
_DROPPED = ("out_features", "out_indices", "_out_features", "_out_indices", "stage_names", "per_layer_config")
_LAYER_COUNTS = ("num_hidden_layers", "num_layers", "n_layer", "n_layers")
_RULES: list[tuple[str, Any]] = [
    (r"num_feat_extract_layers|position_embedding_size|.*text_dim", 10**9),
    (r".*codebook_size", 64),
    (r".*vocab.*size|.*vocabulary_size|num_embeddings|n_words|.*vocab_size.*", VOCABULARY),
    (r"(.*_)?(num_key_value_heads|n_kv_heads?|num_kv_heads|kv_heads|n_head_kv|num_key_value_groups)", GROUPS),
    (r"(.*_)?(num_attention_heads|num_heads|n_heads?|attention_heads|nheads?|num_head|heads|num_query_heads)", HEADS),
    (r"(.*_)?(head_dim|d_kv|kv_channels|head_size|attention_head_size|d_head|head_width)", WIDTH // HEADS),
    (r"(.*_)?(num_hidden_layers|num_layers|n_layers?|layers|depth|num_blocks|num_layer|n_block)", LAYERS),
    (
        r"(.*_)?(intermediate_size|ffn_dim|d_ff|n_inner|d_inner|inner_dim|ffn_hidden_size|mlp_dim|dim_feedforward)",
        2 * WIDTH,
    ),
    (
        r"(.*_)?(hidden_size|d_model|n_embd|embed_dim|embedding_size|hidden_dim|dim|emb_dim|projection_dim|width|embd_pdim)"
        r"|hidden_size_.*",
        WIDTH,
    ),
    (r"(.*_)?(num_local_experts|num_experts|n_routed_experts|moe_num_experts|num_routed_experts)", 4),
    (r"(.*_)?(num_experts_per_tok|moe_k|top_k_experts|moe_topk|num_selected_experts|moe_top_k)", 2),
    (r"(.*_)?(n_group|topk_group)", 1),
    (r"(.*_)?(image_size|img_size|crop_size)", IMAGE),
    (r"(.*_)?patch_size", PATCH),
]

_RESNET = {
    "use_timm_backbone": False,
    "backbone": None,
    "backbone_config": {
        **{"model_type": "resnet", "embedding_size": 8, "hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1]},
        **{"layer_type": "basic", "out_features": ["stage2", "stage3", "stage4"]},
    },
}
_LAST_STAGE = {**_RESNET, "backbone_config": {**_RESNET["backbone_config"], "out_features": ["stage4"]}}
_FOUR_HEADS = {"num_key_value_heads": HEADS}
_MAMBA = {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_expand": 2}
_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
_MLA = {
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 8,
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    "head_dim": 8,
}

_QSA = {
    **{"indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 8},
    **{"indexer_budget": 8, "indexer_compress_ratio": 2},
}

# Towers of timm, for which transformers' defaults have hundreds of millions of weights, or no attention.
_TOWER = {
    "architecture": "vit_pe_core_tiny_patch16_384",
    "model_args": {"img_size": IMAGE, "patch_size": PATCH, "depth": LAYERS, "embed_dim": WIDTH, "num_heads": HEADS},
}
_MOBILE_NET = {"model_args": {"channel_multiplier": 0.01}, "hidden_size": 2048}  # of `mobilenetv5_300m_enc`
_FAST_VIT = {
    "architecture": "fastvit_sa12",
    "model_args": {"layers": [1, 1, 1, 1], "embed_dims": [16, 16, WIDTH, WIDTH]},
    "hidden_size": 2 * WIDTH,
}

# What cannot be derived from the names. `_first` lists entries without which the default configuration cannot be created,
# `_class` names the model class, and `_default` keeps a default configuration that is already small.
OVERRIDES: dict[str, dict[str, Any]] = {
    **dict.fromkeys(
        ("detr", "conditional_detr", "dab-detr", "table-transformer"), {**_LAST_STAGE, "_first": tuple(_RESNET)}
    ),
    **dict.fromkeys(("deformable_detr", "omdet-turbo"), {**_RESNET, "_first": tuple(_RESNET)}),
    **dict.fromkeys(
        ("autoformer", "informer", "time_series_transformer"), {"prediction_length": 4, "context_length": 8}
    ),
    **dict.fromkeys(("bamba", "falcon_h1", "granitemoehybrid"), _MAMBA),
    **dict.fromkeys(("esmc", "glm5_next_text"), _FOUR_HEADS),
    **dict.fromkeys(("hunyuan_v1_dense", "hunyuan_v1_moe", "hunyuan_vl_text", "ministral"), {"head_dim": 8}),
    **dict.fromkeys(("mimi", "mimi_decoder", "mimi_encoder", "pocket_tts_audio_tokenizer"), {"upsample_groups": 8}),
    "longcat_flash": {**_MLA, "head_dim": 16, "qk_head_dim": 16},
    "mistral4": {**_MLA, "head_dim": 16},
    "deepseek_v2": {**_MLA, "num_experts_per_tok": 2, "n_routed_experts": 4, "topk_group": 1, "n_group": 1},
    "donut-swin": {"window_size": 4},
    "clap": {"audio_config": {"window_size": 4}},
    "moonshine": {"encoder_num_key_value_heads": HEADS, "decoder_num_key_value_heads": HEADS},
    "cohere_compass_text": {"rope_parameters": {"full_attention": _ROPE, "sliding_attention": _ROPE}},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1},
    "emu3": {"vocabulary_map": {"<image>": 5, "<|extra_200|>": 6}, "_first": ("vocabulary_map",)},
    "chameleon": {"vocabulary_map": {"<image>": 5}, "_first": ("vocabulary_map",)},
    "esm": {"vocab_size": VOCABULARY, "pad_token_id": 0, "mask_token_id": 1},
    "gpt_neo": {
        **{"attention_types": [[["global", "local"], 1]], "attention_layers": ["global", "local"], "num_layers": 2},
        **{"window_size": 4, "_first": ("attention_types", "num_layers")},
    },
    "gptj": {"rotary_dim": 4},
    "codegen": {"rotary_dim": 4},
    "glm5_next": {"text_config": _FOUR_HEADS},
    "hunyuan_vl": {"text_config": {"head_dim": 8}},
    "layoutlmv3": {"coordinate_size": 6, "shape_size": 4},
    "led": {"attention_window": [4, 4]},
    "lilt": {"hidden_size": 48},
    "longformer": {"attention_window": [4, 4]},
    "lw_detr_vit": {"image_size": 64, "num_windows": 4},
    "mobilebert": {"true_hidden_size": WIDTH, "num_feedforward_networks": 1, "intra_bottleneck_size": WIDTH},
    "nemotron": _FOUR_HEADS,
    "bros": {"dim_bbox_projection": WIDTH // HEADS},
    "deepseek_ocr2": {"text_config": {"mlp_layer_types": ["dense", "sparse"]}},
    "gemma3n": {"vision_config": _MOBILE_NET, "text_config": {"num_kv_shared_layers": 0}},
    "gemma3n_text": {"num_kv_shared_layers": 0},
    "gemma3n_vision": _MOBILE_NET,
    "edgetam_video": {"vision_config": {"model_type": "edgetam_vision_model"}, "_first": ("vision_config",)},
    "fast_vlm": {"vision_config": _FAST_VIT},
    "pe_audio_video": {"audio_video_config": {"video_config": {"vision_config": _TOWER}}},
    "pe_audio_video_encoder": {"video_config": {"vision_config": _TOWER}},
    "pe_video": {"video_config": {"vision_config": _TOWER}},
    "pe_video_encoder": {"vision_config": _TOWER},
    "perception_lm": {"vision_config": _TOWER},
    "timm_backbone": {"backbone": "mobilevit_xxs"},
    "timm_wrapper": _TOWER,
    "moonshine_streaming": {**_FOUR_HEADS, "_first": ("num_key_value_heads",)},
    "qwen3_omni_moe": {
        "talker_config": {"spatial_merge_size": 2, "text_config": {"shared_expert_intermediate_size": WIDTH}},
    },
    "qwen4_exp_text": _QSA,
    "qwen4_exp": {"text_config": _QSA},
    "slanet": {"_default": True},
    "t5gemma2_encoder": {"text_config": {"dropout_rate": 0.0}},
    "bamba": {**_MAMBA, "attn_layer_indices": [1]},
    "cohere_compass": {"text_config": {"rope_parameters": {"full_attention": _ROPE, "sliding_attention": _ROPE}}},
    "diffusion_gemma": {
        "text_config": {
            "num_experts": 4,
            "top_k_experts": 2,
            "moe_intermediate_size": WIDTH,
            "head_dim": WIDTH // HEADS,
        }
    },
    "granite4_vision": {"deepstack_layer_map": [[0, 0]], "_first": ("deepstack_layer_map",)},
    "granitemoehybrid": {**_MAMBA, "layer_types": ["mamba", "attention"]},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "lfm2_moe": {
        "layer_types": ["conv", "full_attention"],
        "num_hidden_layers": 2,
        "_first": ("layer_types", "num_hidden_layers"),
    },
    "musicgen": {"_class": "MusicgenForConditionalGeneration"},
    "musicgen_melody": {"_class": "MusicgenMelodyForConditionalGeneration"},
    "recurrent_gemma": {"num_hidden_layers": 3, "attention_window_size": 8, "lru_width": WIDTH},
    "sam3_lite_text_text_model": {"num_hidden_layers": 4},
    "dbrx": {"attn_config": {"rope_theta": 10000.0, "clip_qkv": 8.0, "kv_n_heads": 2}},
    "reformer": {"axial_pos_embds_dim": [16, 16], "axial_pos_shape": [4, 4], "attn_layers": ["local", "lsh"]},
}


def shrink(config: dict[str, Any]) -> dict[str, Any]:
    """Shrink the sizes in a configuration, given as a dictionary."""
    result = {key: shrink_entry(str(key), value) for key, value in config.items() if key not in _DROPPED}
    # Entries that are given layer by layer keep one layer of each kind.
    layers = next((config[key] for key in _LAYER_COUNTS if isinstance(config.get(key), int)), None)
    kinds = config.get("layer_types") or config.get("layers_block_type") or config.get("mlp_layer_types")
    if layers and isinstance(kinds, (list, tuple)) and len(kinds) == layers:
        kept = sorted({kinds.index(kind) for kind in kinds})  # the first of each kind
        kept += [layer for layer in range(layers) if layer not in kept][: max(0, LAYERS - len(kept))]
        result |= {
            key: [value[i] for i in sorted(kept)] for key, value in config.items() if _has_length(value, layers)
        }
        result |= {key: len(kept) for key in _LAYER_COUNTS if config.get(key) == layers}
    heads = next((v for k, v in config.items() if "heads" in str(k) and _has_length(v, None) and v), None)
    if heads and isinstance(heads[0], int) and isinstance(config.get("embed_dim"), int):
        result["embed_dim"] = 8 * heads[0]
    return result


def _has_length(value: Any, length: int | None) -> bool:
    return isinstance(value, (list, tuple)) and length in (None, len(value))


def shrink_entry(name: str, value: Any) -> Any:
    """Shrink one entry of a configuration."""
    if isinstance(value, dict):
        return shrink(value)
    if name == "mrope_section":
        return [2, 1, 1]
    if isinstance(value, bool) or not isinstance(value, int):
        return value
    for pattern, small in _RULES:
        if re.fullmatch(pattern, name):
            return min(value, small)
    if name.endswith(("token_id", "token_index")) and value >= VOCABULARY:
        return VOCABULARY - 1 - sum(map(ord, name)) % 20  # so that several ids differ
    return value


def merged(config: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Apply `changes` to a dictionary, merging nested dictionaries."""
    result = dict(config)
    for key, value in changes.items():
        result[key] = (
            merged(result[key], value) if isinstance(value, dict) and isinstance(result.get(key), dict) else value
        )
    return result


def model_class_of(model_type: str) -> type | None:
    """Return the base model of a model type, or its first model with a head; `None` if it has no model."""
    config_class = CONFIG_MAPPING[model_type]
    if "_class" in OVERRIDES.get(model_type, {}):
        return getattr(transformers, OVERRIDES[model_type]["_class"])
    names = ["MODEL_MAPPING", *(name for name in vars(modeling_auto) if name.endswith("_MAPPING"))]
    for mapping in (getattr(modeling_auto, name) for name in names):
        if model_type in mapping._model_mapping:
            found = mapping.get(config_class, None)
            if found is not None:
                return found[0] if isinstance(found, (list, tuple)) else found
    return None


def family_config(model_type: str) -> PreTrainedConfig:
    """Make the shrunk configuration of a model type."""
    config_class = CONFIG_MAPPING[model_type]
    changes = OVERRIDES.get(model_type, {})
    if changes.get("_default"):  # already small
        return config_class()
    config = config_class(**{key: changes[key] for key in changes.get("_first", ())}).to_dict()
    for key in ("transformers_version", "architectures", "model_type", "_name_or_path", "dtype"):
        config.pop(key, None)
    changes = {key: value for key, value in changes.items() if not key.startswith("_")}
    return config_class(**merged(shrink(config), changes))


def tiny_family(model_type: str, seed: int = 0, **changes: Any) -> transformers.PreTrainedModel:
    """Make a tiny dense model of a model type, in evaluation mode, with `changes` to its configuration."""
    torch.manual_seed(seed)
    config = family_config(model_type)
    config.update(changes)
    return sharpened(model_class_of(model_type)._from_config(config), 4.0).eval()
