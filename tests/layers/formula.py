# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The layers written out plainly, one sample and one head at a time, without anything from the package.

This is hflayers' documented behaviour (with softmax): what the layers must equal when they have the same weights.
"""

import math

import torch


def softmax(scores: torch.Tensor) -> torch.Tensor:
    if torch.isneginf(scores).all():
        return torch.zeros_like(scores)
    exponentials = (scores - scores.max()).exp()
    return exponentials / exponentials.sum()


def sparsemax(scores: torch.Tensor) -> torch.Tensor:
    if torch.isneginf(scores).all():
        return torch.zeros_like(scores)
    ordered = scores[~torch.isneginf(scores)].sort(descending=True).values
    counts = torch.arange(1, len(ordered) + 1, dtype=scores.dtype)
    thresholds = (ordered.cumsum(0) - 1) / counts
    size = int((ordered > thresholds).sum())
    return (scores - thresholds[size - 1]).clamp(min=0)


def layer_norm(x: torch.Tensor, weight=None, bias=None, eps: float = 1e-5) -> torch.Tensor:
    x = (x - x.mean(-1, keepdim=True)) / (x.var(-1, unbiased=False, keepdim=True) + eps).sqrt()
    return x if weight is None else x * weight + bias


def hopfield_formula(
    weights: dict[str, torch.Tensor],
    stored: torch.Tensor,
    state: torch.Tensor,
    projection: torch.Tensor,
    *,
    normalizer=softmax,
    num_heads: int = 1,
    hidden_size: int,
    scaling=None,
    beta: float = 1.0,
    update_steps_max: int = 0,
    stored_pattern_as_static: bool = False,
    state_pattern_as_static: bool = False,
    pattern_projection_as_static: bool = False,
    pattern_projection_as_connected: bool = False,
    normalize: bool = True,
    normalize_hopfield_space: bool = False,
    add_zero_association: bool = False,
    concat_bias_pattern: bool = False,
    padding_mask: torch.Tensor | None = None,
    additive_mask: torch.Tensor | None = None,
):
    """Output (batch, states, output), weights (batch, heads, states, stored), values (batch, heads, stored, pattern)."""
    w = {name.removeprefix("association_core."): tensor.detach().double() for name, tensor in weights.items()}
    stored, state, projection = stored.double(), state.double(), projection.double()
    if normalize:
        stored = layer_norm(stored, w.get("norm_stored_pattern.weight"), w.get("norm_stored_pattern.bias"))
        state = layer_norm(state, w.get("norm_state_pattern.weight"), w.get("norm_state_pattern.bias"))
        projection = layer_norm(
            projection, w.get("norm_pattern_projection.weight"), w.get("norm_pattern_projection.bias")
        )

    # Rows of the joint weight and of the joint bias: state, stored, projection; static ones have no rows.
    hidden = num_heads * hidden_size
    row_state = 0
    row_stored = row_state + (0 if state_pattern_as_static else hidden)
    row_projection = row_stored + (0 if stored_pattern_as_static else hidden)
    if "in_proj_weight" in w:
        w["q_proj_weight"] = w["in_proj_weight"][row_state:row_stored]
        w["k_proj_weight"] = w["in_proj_weight"][row_stored:row_projection]
        w["v_proj_weight"] = w["in_proj_weight"][row_projection:]
    bias = w.get("in_proj_bias", torch.zeros(100_000, dtype=torch.float64))

    def project(x, weight, first):
        return x @ weight.T + bias[first : first + len(weight)]

    outputs, all_weights, all_values = [], [], []
    for sample in range(len(state)):
        heads = []
        for head in range(num_heads):
            part = slice(head * hidden_size, (head + 1) * hidden_size)
            q, k, v = state[sample], stored[sample], projection[sample]
            if not state_pattern_as_static:
                q = project(q, w["q_proj_weight"], row_state)[:, part]
            if not stored_pattern_as_static:
                if pattern_projection_as_connected:
                    v = project(v, w["k_proj_weight"], row_stored)
                    if pattern_projection_as_static:
                        v = v[:, part]
                k = project(k, w["k_proj_weight"], row_stored)[:, part]
            if not pattern_projection_as_static:
                v = project(v, w["v_proj_weight"], row_projection)
                size = v.shape[1] // num_heads
                v = v[:, head * size : (head + 1) * size]
            if normalize_hopfield_space:
                q = layer_norm(q, w.get("p_norm_weight"), w.get("p_norm_bias"))
                k = layer_norm(k, w.get("p_norm_weight"), w.get("p_norm_bias"))
            if concat_bias_pattern:
                k = torch.cat([k, w["bias_k"][0, :, part]])
                size = v.shape[1]
                v = torch.cat([v, w["bias_v"][0, :, head * size : (head + 1) * size]])
            if add_zero_association:
                k = torch.cat([k, torch.zeros(1, k.shape[1], dtype=k.dtype)])
                v = torch.cat([v, torch.zeros(1, v.shape[1], dtype=v.dtype)])

            added = torch.zeros(len(q), len(k), dtype=torch.float64)
            if additive_mask is not None:
                added[:, : additive_mask.shape[-1]] += additive_mask[sample, head].double()
            if padding_mask is not None:
                added[:, : padding_mask.shape[-1]] += torch.where(padding_mask[sample], -math.inf, 0.0)
            if scaling is None:
                factor = 1.0 / math.sqrt(hidden_size)
            else:
                factor = scaling[head] if isinstance(scaling, (list, tuple)) else scaling
            for _ in range(update_steps_max):
                scores = beta * factor * (q @ k.T) + added
                q = torch.stack([normalizer(row) for row in scores]) @ k
            scores = beta * factor * (q @ k.T) + added
            p = torch.stack([normalizer(row) for row in scores])
            heads.append((p @ v, p, v))
        outputs.append(torch.cat([z for z, _, _ in heads], dim=-1))
        all_weights.append(torch.stack([p for _, p, _ in heads]))
        all_values.append(torch.stack([v for _, _, v in heads]))
    output = torch.stack(outputs)
    if "out_proj.weight" in w:
        output = output @ w["out_proj.weight"].T
        if "out_proj.bias" in w:
            output = output + w["out_proj.bias"]
    return output, torch.stack(all_weights), torch.stack(all_values)


def scramble(module: torch.nn.Module, generator: torch.Generator | None = None) -> None:
    """Give every parameter a value of ordinary size: with the tiny initial ones (biases zero) mistakes could hide."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
