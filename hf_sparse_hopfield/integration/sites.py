# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The attention modules of a model, and the configurations around them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch import nn
from transformers.configuration_utils import PreTrainedConfig

from ..checks import is_integer
from ..configuration import SparseHopfieldConfig
from .families import Kind, classify
from .upstream import ATTENTION_NAME, attention_name, is_this_attention


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
        return is_this_attention(attention_name(self.configs[0]))

    @property
    def settings(self) -> SparseHopfieldConfig:
        """The settings of the nearest configuration that has any."""
        return settings_of(self.configs)


def owner_of_settings(configs: Iterable[PreTrainedConfig]) -> PreTrainedConfig | None:
    """The first of `configs` that has settings."""
    return next((config for config in configs if getattr(config, ATTENTION_NAME, None) is not None), None)


def settings_of(configs: Iterable[PreTrainedConfig]) -> SparseHopfieldConfig:
    """The settings in the first of `configs` that has any; the defaults without one."""
    return SparseHopfieldConfig.from_dict(getattr(owner_of_settings(configs), ATTENTION_NAME, None))


def is_converted_config(config: PreTrainedConfig) -> bool:
    """Whether a configuration is that of a converted model, or was read from its checkpoint as that of its family."""
    return hasattr(type(config), "base_config_class") or "base_model_type" in vars(config)


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
    return with_parts(getattr(module, "config", None) for module in model.modules())


def with_parts(configs: Iterable[Any]) -> list[PreTrainedConfig]:
    """Configurations and their parts, each once. Other objects among them are left out."""
    found: dict[int, PreTrainedConfig] = {}

    def add(config: Any) -> None:
        if isinstance(config, PreTrainedConfig) and id(config) not in found:
            found[id(config)] = config
            for name in config.sub_configs:
                add(getattr(config, name, None))

    for config in configs:
        add(config)
    return list(found.values())


def shortened(names: list[str]) -> str:
    """Names for a message: all of them, or the first and last ones."""
    return ", ".join(names if len(names) <= 6 else [*names[:3], "...", *names[-2:]])
