# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""A converted layer compared with the formula, written out once more in float64."""

import math
from typing import Any, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F

from ...functional import entmax
from ...layers import SparseHopfield, SparseHopfieldLayer, SparseHopfieldPooling
from ...layers.hopfield import CONVERGENCE_STEPS


Layer: TypeAlias = SparseHopfield | SparseHopfieldLayer | SparseHopfieldPooling

_BATCH, _STATES, _STORED = 2, 3, 7
_NOT_COVERED = ("_as_static", "_as_connected", "concat_bias_pattern", "add_zero_association", "association_activation")


class Patterns(NamedTuple):
    """The patterns of a retrieval, each of shape `(batch, patterns, width)`, before their layer norms."""

    state_pattern: torch.Tensor
    stored_pattern: torch.Tensor
    pattern_projection: torch.Tensor


@torch.no_grad()
def verify_layer(layer: Layer, arguments: dict[str, Any]) -> float | str:
    """
    Compare a layer with the formula on random inputs, in float64.

    Args:
        layer ([`SparseHopfield`], [`SparseHopfieldPooling`] or [`SparseHopfieldLayer`]): From [`load_layers`]. It is converted to float64.
        arguments (`dict`): Its constructor arguments.

    Returns:
        `float` or `str`: The largest difference, which must be small; or a note if the formula does not cover the options.
    """
    if not _is_covered(arguments):
        return "loads; the formula does not cover its options"
    layer.double()
    inputs, patterns = _random_inputs(layer, arguments)
    expected = _formula(layer if isinstance(layer, SparseHopfield) else layer.hopfield, arguments, patterns)
    output = layer(inputs)
    difference = float((expected.reshape(output.shape) - output).abs().max())
    # A layer that stops updating a row once it moves by less than update_steps_eps may differ by about that much.
    allowed = 10 * arguments.get("update_steps_eps", 1e-4) if _updates(arguments) else 1e-8
    if not difference <= allowed * float(expected.abs().max().clamp_min(1)):
        raise RuntimeError(
            f"verification failed: the outputs of the layer differ by up to {difference:.3g} from the formula. Check "
            f"num_heads={arguments['num_heads']} and the options. Nothing was kept."
        )
    return difference


def _is_covered(arguments: dict[str, Any]) -> bool:
    """Whether the formula covers the options of a layer."""
    special = any(value for key, value in arguments.items() if key.endswith(_NOT_COVERED))
    per_head = any(isinstance(arguments.get(name), list) for name in ("alpha", "beta"))
    batch_first = arguments.get("batch_first", True)
    return batch_first and not (special or per_head or arguments["normalize_hopfield_space"])


def _random_inputs(layer: Layer, arguments: dict[str, Any]) -> tuple[Any, Patterns]:
    """The inputs of a layer, and the patterns that it makes of them and its own."""
    generator = torch.Generator().manual_seed(0)

    def noise(count: int, width: int) -> torch.Tensor:
        return torch.randn(_BATCH, count, width, generator=generator, dtype=torch.float64)

    width = arguments["input_size"]
    stored, state = noise(_STORED, arguments.get("stored_pattern_size") or width), noise(_STATES, width)
    projection_width = arguments.get("pattern_projection_size")
    projection = stored if projection_width in (None, stored.shape[-1]) else noise(_STORED, projection_width)
    if isinstance(layer, SparseHopfieldPooling):
        inputs = stored if projection is stored else (stored, projection)
        return inputs, Patterns(_batched(layer.pooling_weights), stored, projection)
    if isinstance(layer, SparseHopfieldLayer):
        lookup = _batched(layer.lookup_weights)
        targets = lookup if layer.target_weights is None else _batched(layer.target_weights)
        return state, Patterns(state, lookup, targets)
    return (stored, state, projection), Patterns(state, stored, projection)


def _batched(weights: torch.Tensor) -> torch.Tensor:
    return weights.expand(_BATCH, -1, -1)


def _formula(hopfield: SparseHopfield, arguments: dict[str, Any], patterns: Patterns) -> torch.Tensor:
    """The output of a layer: U updates of the state, the read-out and the output projection."""
    weights = {key.removeprefix("association_core."): value for key, value in hopfield.state_dict().items()}
    query, key, value = _projected(hopfield, arguments, weights, patterns)
    scaling = arguments.get("scaling") or 1 / math.sqrt(query.shape[-1])
    scaling = torch.as_tensor(scaling, dtype=torch.float64).reshape(-1, 1, 1) * arguments.get("beta", 1.0)
    for _ in range(_updates(arguments)):
        query = _normalized(scaling * query @ key.mT, arguments["alpha"]) @ key
    output = _normalized(scaling * query @ key.mT, arguments["alpha"]) @ value
    output = output.transpose(1, 2).flatten(2)
    if "out_proj.weight" in weights:
        output = output @ weights["out_proj.weight"].T + weights.get("out_proj.bias", 0.0)
    return output


def _updates(arguments: dict[str, Any]) -> int:
    updates = arguments.get("update_steps_max", 0)
    return CONVERGENCE_STEPS if updates is None or updates < 0 else updates


def _projected(
    hopfield: SparseHopfield, arguments: dict[str, Any], weights: dict[str, torch.Tensor], patterns: Patterns
) -> list[torch.Tensor]:
    """Queries, keys and values of every head: the patterns after their layer norms and input projections."""
    heads = arguments["num_heads"]
    assert hopfield.hidden_size is not None and hopfield.pattern_size is not None  # known where patterns are projected
    sizes = [hopfield.hidden_size * heads, hopfield.hidden_size * heads, hopfield.pattern_size * heads]
    if "in_proj_weight" in weights:
        matrices = list(weights["in_proj_weight"].split(sizes))
    else:
        matrices = [weights[f"{letter}_proj_weight"] for letter in "qkv"]
    bias = weights.get("in_proj_bias", torch.zeros(sum(sizes), dtype=torch.float64))
    projected = []
    for (name, pattern), matrix, shift in zip(patterns._asdict().items(), matrices, bias.split(sizes), strict=True):
        if arguments[f"normalize_{name}"]:
            scale_and_shift = weights.get(f"norm_{name}.weight"), weights.get(f"norm_{name}.bias")
            epsilon = arguments.get(f"normalize_{name}_eps", 1e-5)
            pattern = F.layer_norm(pattern, pattern.shape[-1:], *scale_and_shift, epsilon)
        projected.append((pattern @ matrix.T + shift).unflatten(-1, (heads, -1)).transpose(1, 2))
    return projected


def _normalized(scores: torch.Tensor, alpha: float) -> torch.Tensor:
    """Softmax and sparsemax by their definition, what lies between by entmax."""
    if alpha == 1.0:
        return scores.softmax(-1)
    if alpha != 2.0:
        return entmax(scores, alpha)
    ordered = scores.sort(-1, descending=True).values
    thresholds = (ordered.cumsum(-1) - 1) / torch.arange(1, scores.shape[-1] + 1, dtype=scores.dtype)
    size = (ordered > thresholds).sum(-1, keepdim=True)
    return (scores - thresholds.gather(-1, size - 1)).clamp_min(0)
