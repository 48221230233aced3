# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The Markdown tables of a model card."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from ..integration.binding import LayerRetrieval
from ..layers.association import HopfieldAssociation
from ..observation import own_settings
from ..retrieval_parameters import RetrievalParameters


def settings_table(model: nn.Module, support: dict[str, list[float]] | None = None) -> str:
    """
    Make a Markdown table of alpha, beta, length_power and steps of every attention module.

    Args:
        model ([`~transformers.PreTrainedModel`]): A sparse model.
        support (`dict[str, list[float]]`, *optional*): For each attention module, the share of the keys that each head uses.
    """
    support = support or {}
    rows = []
    for name, module, steps in _retrievals(model):
        with torch.no_grad():
            beta, alpha, power = (_span(value) for value in _learned_or_fixed(module))
        shares = support.get(name)
        used = f"{sum(shares) / len(shares):.1%}" if shares else ""
        rows.append([name, str(module.num_heads), alpha, beta, power, str(steps), used])
    heads = ["attention module", "heads", "alpha", "beta", "length power", "steps", "keys with weight"]
    if all(row[4] == "0" for row in rows):  # nothing depends on the length
        rows, heads = [row[:4] + row[5:] for row in rows], heads[:4] + heads[5:]
    lines = [f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows)]
    if len(lines) == 2:  # a model of this package that pools without Hopfield layers
        names = ("alpha", "beta", "steps")
        lines = ["| alpha | beta | steps |", "| --- | --- | --- |"]
        lines.append("".join(f"| {getattr(model.config, name, '')} " for name in names) + "|")
    return "\n".join(lines)


def _learned_or_fixed(module: RetrievalParameters) -> tuple[Any, Any, Any]:
    # Parameters that are sharded over processes need all of them to be gathered; this runs in one process only.
    sharded = any(hasattr(each, "full_tensor") or each.numel() != module.num_heads for each in module.parameters())
    if not sharded:
        return own_settings(module)
    names = ("beta", "alpha", "length_power")
    beta, alpha, power = ("learned" if getattr(module, f"learn_{name}") else module.configured(name) for name in names)
    return beta, alpha, power


def _retrievals(model: nn.Module) -> list[tuple[str, RetrievalParameters, int]]:
    """The name of each attention module or layer, its parameters of retrieval, and its number of steps."""
    found: list[tuple[str, RetrievalParameters, int]] = []
    for name, module in model.named_modules():
        if isinstance(module, LayerRetrieval):
            found.append((module.name, module, module.steps))
        elif isinstance(module, HopfieldAssociation):
            found.append((_layer_name(name), module.retrieval_parameters, module.steps))
    return found


def _layer_name(core: str) -> str:
    """The path of a layer, from the path of its core."""
    return core.removesuffix("association_core").rstrip(".")


def _span(setting: Any) -> str:
    if isinstance(setting, (str, float, int)):
        return setting if isinstance(setting, str) else f"{setting:.4g}"
    values = torch.as_tensor(setting)
    low, high = f"{float(values.min()):.3g}", f"{float(values.max()):.3g}"
    return low if low == high else f"{low} to {high}"


def numbers_table(values: Mapping[str, float | str]) -> str:
    """
    Make a Markdown table with one number, or text, per row.

    Args:
        values (`dict[str, float | str]`): Name to value.
    """
    shown = {key: value if isinstance(value, str) else f"{value:.4f}" for key, value in values.items()}
    rows = "\n".join(f"| {key.replace('_', ' ')} | {value} |" for key, value in shown.items())
    return f"| | |\n| --- | --- |\n{rows}"
