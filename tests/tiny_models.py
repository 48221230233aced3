# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Tiny models with random weights, one for each kind of attention in transformers, for all tests."""

import torch
import transformers
from torch import nn

import hf_sparse_hopfield  # noqa: F401  (registers the attention)


VOCABULARY = 99
IMAGE_TOKEN = 98

_TEXT = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_GROUPED = {**_TEXT, "num_key_value_heads": 2, "head_dim": 8}
_SEQ2SEQ = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 40,
    "decoder_ffn_dim": 40,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": None,
}
_IMAGE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "image_size": 8,
    "patch_size": 4,
}

# By name: model class, configuration class, arguments of the configuration.
SPECIFICATIONS = {
    "bert": ("BertForMaskedLM", "BertConfig", _TEXT),
    "gpt2": (
        "GPT2LMHeadModel",
        "GPT2Config",
        {
            **{"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
            **{"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0},
        },
    ),
    "llama": ("LlamaForCausalLM", "LlamaConfig", _GROUPED),
    "mistral": ("MistralForCausalLM", "MistralConfig", {**_GROUPED, "sliding_window": 6}),
    "gemma2": (
        "Gemma2ForCausalLM",
        "Gemma2Config",
        {**_GROUPED, "sliding_window": 6, "attn_logit_softcapping": 5.0, "query_pre_attn_scalar": 8},
    ),
    "gpt_oss": (
        "GptOssForCausalLM",
        "GptOssConfig",
        {**_GROUPED, "sliding_window": 6, "num_local_experts": 4, "num_experts_per_tok": 2},
    ),
    "mixtral": ("MixtralForCausalLM", "MixtralConfig", {**_GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "t5": (
        "T5ForConditionalGeneration",
        "T5Config",
        {
            **{"vocab_size": VOCABULARY, "d_model": 32, "d_kv": 8, "d_ff": 40, "num_layers": 2, "num_heads": 4},
            **{"relative_attention_num_buckets": 8, "decoder_start_token_id": 0, "eos_token_id": 2, "pad_token_id": 0},
        },
    ),
    "bart": ("BartForConditionalGeneration", "BartConfig", _SEQ2SEQ),
    "marian": (
        "MarianMTModel",
        "MarianConfig",
        {**_SEQ2SEQ, "decoder_vocab_size": VOCABULARY, "decoder_start_token_id": 0, "forced_eos_token_id": None},
    ),
    "vit": ("ViTForImageClassification", "ViTConfig", _IMAGE),
    "whisper": (
        "WhisperForConditionalGeneration",
        "WhisperConfig",
        {
            **_SEQ2SEQ,
            **{"num_mel_bins": 8, "max_source_positions": 10, "max_target_positions": 40},
            **{"begin_suppress_tokens": None, "suppress_tokens": None},
        },
    ),
    "llava": (
        "LlavaForConditionalGeneration",
        "LlavaConfig",
        {
            "text_config": {"model_type": "llama", **_GROUPED},
            "vision_config": {"model_type": "clip_vision_model", "projection_dim": 32, **_IMAGE},
            "image_token_id": IMAGE_TOKEN,
            "image_seq_length": 4,
            "vision_feature_select_strategy": "default",
            "vision_feature_layer": -1,
        },
    ),
    # Attention classes that do not use transformers' attention registry.
    "bloom": (
        "BloomForCausalLM",
        "BloomConfig",
        {"vocab_size": VOCABULARY, "hidden_size": 32, "n_layer": 2, "n_head": 4},
    ),
    "gptj": (
        "GPTJForCausalLM",
        "GPTJConfig",
        {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4, "n_positions": 64}
        | {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0},
    ),
    "mpnet": ("MPNetForMaskedLM", "MPNetConfig", _TEXT),
}
CAUSAL = ("gpt2", "llama", "mistral", "gemma2", "gpt_oss", "mixtral", "bloom", "gptj")
ENCODER_DECODER = ("t5", "bart", "marian", "whisper")
PATCHED = ("bloom", "gptj", "mpnet")


def tiny_config(name: str, **changes) -> transformers.PreTrainedConfig:
    """Make the configuration of a tiny model, with `changes` applied."""
    _, config_class, arguments = SPECIFICATIONS[name]
    return getattr(transformers, config_class)(**{**arguments, **changes})


def tiny_model(name: str, attn_implementation: str | dict | None = None, seed: int = 0, **changes) -> nn.Module:
    """
    Make a tiny model in evaluation mode. The same seed gives the same weights, whatever the attention.

    Args:
        name (`str`): One of `SPECIFICATIONS`.
        attn_implementation (`str` or `dict`, *optional*): As for `from_pretrained`.
        seed (`int`, *optional*, defaults to 0): Seed of the weights.
        **changes: Changes to the configuration.
    """
    config = tiny_config(name, **changes)
    torch.manual_seed(seed)
    model_class = getattr(transformers, SPECIFICATIONS[name][0])
    kwargs = {} if attn_implementation is None else {"attn_implementation": attn_implementation}
    return sharpened(model_class._from_config(config, **kwargs)).eval()


def sharpened(model: nn.Module, factor: float = 6.0) -> nn.Module:
    """Multiply the weight matrices, so that scores differ enough for sparse weights to be sparse."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Fixed position embeddings are not saved, so they must not change.
            if parameter.ndim > 1 and "sparse_hopfield" not in name and "embed_positions" not in name:
                parameter.mul_(factor)
    return model


def tiny_inputs(name: str, batch: int = 2, length: int = 9, seed: int = 0) -> dict[str, torch.Tensor]:
    """Make inputs for the forward pass of a tiny model."""
    generator = torch.Generator().manual_seed(seed)

    def tokens(n: int) -> torch.Tensor:
        return torch.randint(3, IMAGE_TOKEN, (batch, n), generator=generator)

    if name == "vit":
        return {"pixel_values": torch.randn(batch, 3, 8, 8, generator=generator)}
    if name == "whisper":
        return {
            "input_features": torch.randn(batch, 8, 20, generator=generator),
            "decoder_input_ids": tokens(length),
        }
    if name == "llava":
        image = torch.full((batch, 4), IMAGE_TOKEN)
        pixel_values = torch.randn(batch, 3, 8, 8, generator=generator)
        return {"input_ids": torch.cat([image, tokens(length)], 1), "pixel_values": pixel_values}
    if name in ENCODER_DECODER:
        return {"input_ids": tokens(length), "decoder_input_ids": tokens(length - 2)}
    return {"input_ids": tokens(length)}


def tiny_output(model: nn.Module, inputs: dict[str, torch.Tensor], **kwargs) -> torch.Tensor:
    """Run a tiny model and return its logits."""
    return model(**inputs, **kwargs).logits


def padded(name: str, left: bool) -> dict[str, torch.Tensor]:
    inputs = tiny_inputs(name)
    length = inputs["input_ids"].shape[1]
    mask = torch.ones(2, length, dtype=torch.long)
    if name == "llava":  # the image comes first
        left = False
    mask[0, slice(0, 3) if left else slice(length - 3, length)] = 0
    return {**inputs, "attention_mask": mask}


def rows_that_count(logits: torch.Tensor, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    mask = inputs.get("attention_mask")
    return logits[mask.bool()] if mask is not None and mask.shape == logits.shape[:2] else logits
