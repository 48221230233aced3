# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Checkpoints of tiny models with eight heads, whose alpha, beta and sinks differ from head to head."""

import re
from pathlib import Path

import torch
import transformers

from hf_sparse_hopfield import to_sparse_hopfield
from tests.parallel.run_tensor import SETTINGS


_MULTI_HEAD = {
    "vocab_size": 100,  # even: two processes share the head
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "intermediate_size": 40,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_GROUPED = {**_MULTI_HEAD, "num_key_value_heads": 4, "head_dim": 8}
MODELS = {
    "llama": ("LlamaForCausalLM", _GROUPED),
    "one_key": ("LlamaForCausalLM", {**_GROUPED, "num_key_value_heads": 1}),
    "phi": ("PhiForCausalLM", _MULTI_HEAD),
    "qwen3": ("Qwen3ForCausalLM", _GROUPED),
    "olmo2": ("Olmo2ForCausalLM", {**_MULTI_HEAD, "num_key_value_heads": 4}),
    "granite_swa": ("GraniteSWAForCausalLM", {**_GROUPED, "sliding_window": 5}),
    "bert": ("BertForMaskedLM", _MULTI_HEAD),
}


def write(name: str, folder: Path, sparse: bool = True, dtype: torch.dtype = torch.float32) -> Path:
    """Write a checkpoint; one of its two layers learns beta only, in the other heads have their own alpha as well."""
    model_class, arguments = MODELS[name]
    torch.manual_seed(0)
    model_class = getattr(transformers, model_class)
    model = model_class(model_class.config_class(**arguments)).eval()
    for parameter_name, parameter in model.named_parameters():
        if parameter_name.endswith("sinks"):
            torch.nn.init.normal_(parameter)
        if parameter.ndim > 1 and re.search(r"\.(q_proj|k_proj|query|key)\.", parameter_name):
            parameter.data *= 3  # scores that differ enough for alpha and beta to matter
    if sparse:
        overrides = {"1": {"alpha": SETTINGS["alpha"]}}
        model = to_sparse_hopfield(model, {**SETTINGS, "alpha": 2.0, "overrides": overrides})
    model.to(dtype).save_pretrained(folder / name)
    return folder / name
