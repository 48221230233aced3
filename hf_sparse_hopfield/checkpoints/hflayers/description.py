# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The layers in a state dict of hflayers, and the multiple-instance classifier around them, told by names and shapes."""

import re
from collections.abc import Mapping
from typing import Any

import torch

from ...models import SparseHopfieldMultipleInstanceConfig


_CORE = re.compile(r"^(?P<prefix>.*?)association_core\.[^.]+(\.(weight|bias))?$")
_PATTERNS = ("stored_pattern", "state_pattern", "pattern_projection")


def describe_layers(
    state: dict[str, torch.Tensor], num_heads: int, alpha: float, options: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """
    Find the class and the constructor arguments of every Hopfield layer in a state dict.

    Args:
        state (`dict[str, torch.Tensor]`): The state dict.
        num_heads (`int`): Heads of every layer.
        alpha (`float`): 1 for a dense layer, 2 for a sparse one.
        options (`dict`): More constructor arguments; they take precedence over what the shapes tell.

    Returns:
        `dict`: Prefix of a layer's names to its `class` and `arguments`.
    """
    if num_heads < 1:
        raise ValueError(f"num_heads must be at least 1, got {num_heads}.")
    prefixes = sorted({match["prefix"] for match in map(_CORE.match, state) if match})
    if not prefixes:
        raise ValueError("the state dict has no names with 'association_core.': it holds no layer of hflayers.")
    layers = {}
    for prefix in prefixes:
        arguments = {**_sizes(state, prefix, num_heads, options), "num_heads": num_heads, "alpha": alpha, **options}
        outer = prefix.removesuffix("hopfield.")
        name, extra = "SparseHopfield", {}
        if prefix.endswith("hopfield.") and f"{outer}pooling_weights" in state:
            name, extra = "SparseHopfieldPooling", {"quantity": state[f"{outer}pooling_weights"].shape[1]}
        elif prefix.endswith("hopfield.") and f"{outer}lookup_weights" in state:
            name, extra = "SparseHopfieldLayer", {"quantity": state[f"{outer}lookup_weights"].shape[1]}
            extra["lookup_weights_as_separated"] = f"{outer}target_weights" in state
        layers[outer if extra else prefix] = {"class": name, "arguments": {**arguments, **extra}}
    return layers


def _sizes(state: dict[str, torch.Tensor], prefix: str, heads: int, options: Mapping[str, Any]) -> dict[str, Any]:
    """The constructor arguments that names and shapes tell: which parts a layer has, and their sizes."""
    core = {
        key.removeprefix(f"{prefix}association_core."): value for key, value in state.items() if key.startswith(prefix)
    }
    found: dict[str, Any] = {
        "input_bias": "in_proj_bias" in core,
        "concat_bias_pattern": "bias_k" in core,
        "normalize_hopfield_space": "p_norm_weight" in core,
        "normalize_hopfield_space_affine": "p_norm_weight" in core,
        "disable_out_projection": "out_proj.weight" not in core,
    }
    for name in _PATTERNS:
        found[f"normalize_{name}"] = f"{prefix}norm_{name}.weight" in state
    if any(options.get(f"{name}_as_static") for name in _PATTERNS):
        return found  # static patterns have no weights whose shape tells a size: the options do
    if "in_proj_weight" in core:
        rows, width = core["in_proj_weight"].shape  # one joint weight: three parts of the same size
        found |= {"input_size": width, "hidden_size": rows // 3 // heads}
    elif "q_proj_weight" in core:
        (rows, width), (value_rows, value_width) = core["q_proj_weight"].shape, core["v_proj_weight"].shape
        found |= {"input_size": width, "hidden_size": rows // heads, "pattern_size": value_rows // heads}
        found |= {"stored_pattern_size": core["k_proj_weight"].shape[1], "pattern_projection_size": value_width}
    else:
        raise ValueError(
            f"layer {prefix!r} has neither in_proj_weight nor q_proj_weight: give its sizes in --options."
        )
    if "out_proj.weight" in core:
        found["output_size"] = core["out_proj.weight"].shape[0]
    return found


def multiple_instance_config(
    state: dict[str, torch.Tensor], layers: dict[str, dict[str, Any]]
) -> SparseHopfieldMultipleInstanceConfig:
    """
    Find the configuration of [`SparseHopfieldForMultipleInstanceClassification`] that fits a state dict.

    Args:
        state (`dict[str, torch.Tensor]`): The state dict.
        layers (`dict`): From [`describe_layers`].
    """
    kinds = {"SparseHopfieldPooling": "pooling", "SparseHopfield": "hopfield"}
    entry = layers.get("aggregation.", {"class": None})
    if list(layers) != ["aggregation."] or entry["class"] not in kinds or "classifier.weight" not in state:
        raise ValueError(
            "--model needs 'classifier.weight' and one layer of hflayers, HopfieldPooling or Hopfield, whose names begin "
            f"with 'aggregation.'; the state dict has the layers {[*layers]}. Use --rename, or leave --model out."
        )
    arguments = entry["arguments"]
    names = {"update_steps_max": "update_steps", "update_steps_eps": "update_eps", "hidden_size": "head_size"}
    same = ("num_heads", "alpha", "beta", "scaling", "quantity")
    embedding = [name for name in state if re.fullmatch(r"embedding\.\d+\.weight", name)]
    return SparseHopfieldMultipleInstanceConfig(
        input_size=state["embedding.0.weight"].shape[1] if embedding else arguments["input_size"],
        embedding_layers=len(embedding),
        embedding_size=arguments["input_size"],
        aggregation=kinds[entry["class"]],
        normalize=all(arguments[f"normalize_{name}"] for name in _PATTERNS),
        num_labels=state["classifier.weight"].shape[0],
        architectures=["SparseHopfieldForMultipleInstanceClassification"],
        **{names.get(name, name): arguments[name] for name in (*names, *same) if arguments.get(name) is not None},
    )
