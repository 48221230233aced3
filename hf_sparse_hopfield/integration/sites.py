# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The attention modules of a model, and the configurations around them."""

from dataclasses import dataclass
from typing import Any

from torch import nn
from transformers.configuration_utils import PreTrainedConfig

from ..checks import is_integer
from ..configuration import SparseHopfieldConfig
from .families import Kind, classify
from .upstream import ATTENTION_NAME, attention_name


_HEAD_ATTRIBUTES = (
    "num_heads",
    "num_attention_heads",
    "n_heads",
    "n_head",
    "num_attn_heads",
    "attn_heads",
    "heads",
    "num_query_heads",
)


@dataclass
class Site:
    """An attention module in a model: its path, how its class is reached, and the configurations around it."""

    name: str
    module: nn.Module
    kind: Kind
    configs: list[PreTrainedConfig]  # nearest first

    @property
    def is_sparse(self) -> bool:
        """Whether the module's configuration selects this attention."""
        return attention_name(self.configs[0]) == ATTENTION_NAME

    @property
    def settings(self) -> SparseHopfieldConfig:
        """The settings of the nearest configuration that has any."""
        return settings_of(self.configs)


def settings_of(configs: list[PreTrainedConfig]) -> SparseHopfieldConfig:
    """The settings in the first of `configs` that has any; the defaults without one."""
    for config in configs:
        settings = getattr(config, ATTENTION_NAME, None)
        if settings is not None:
            return SparseHopfieldConfig.from_dict(settings)
    return SparseHopfieldConfig()


def attention_sites(model: nn.Module) -> list[Site]:
    """The attention modules of a model, in the order of `named_modules`."""
    sites = []

    def visit(module: nn.Module, name: str, configs: list[PreTrainedConfig]) -> None:
        config = getattr(module, "config", None)
        if isinstance(config, PreTrainedConfig) and not any(config is outer for outer in configs):
            configs = [config, *configs]
        kind = classify(type(module))  # type: ignore[arg-type]  # classes are hashable
        if kind is not None and configs:
            sites.append(Site(name, module, kind, configs))
        for child_name, child in module.named_children():
            visit(child, f"{name}.{child_name}" if name else child_name, configs)

    visit(model, "", [])
    return sites


def number_of_heads(site: Site) -> int | None:
    """The number of heads of an attention module, or `None` if it is unknown."""
    for holder in (site.module, site.configs[0]):
        for attribute in _HEAD_ATTRIBUTES:
            heads = getattr(holder, attribute, None)
            if is_integer(heads) and heads > 0:
                return heads
    return None


def configs_of(model: nn.Module) -> list[PreTrainedConfig]:
    """All configurations in a model: those of its modules, and their parts."""
    found: dict[int, PreTrainedConfig] = {}

    def add(config: Any) -> None:
        if isinstance(config, PreTrainedConfig) and id(config) not in found:
            found[id(config)] = config
            for name in config.sub_configs:
                add(getattr(config, name, None))

    for module in model.modules():
        add(getattr(module, "config", None))
    return list(found.values())


def shortened(names: list[str]) -> str:
    """Names for a message: all of them, or the first and last ones."""
    return ", ".join(names if len(names) <= 6 else [*names[:3], "...", *names[-2:]])
