# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Changing alpha, beta and length_power of a whole model: in its modules and in its configurations, so that what runs is what is saved.

Schedules use [`LiveSettings`], calibration uses [`apply_settings`]. Both write the values of a module with
[`RetrievalParameters.set`].
"""

import logging
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import torch
from accelerate.utils import extract_model_from_parallel
from torch import nn
from transformers import PreTrainedModel

from ..configuration import HEAD_FIELDS, SparseHopfieldConfig, layer_matches
from ..retrieval_parameters import Numbers, RetrievalParameters
from .binding import LayerRetrieval
from .sites import Site, attention_sites, configs_of
from .upstream import ATTENTION_NAME


logger = logging.getLogger(__name__)

_NAMES = ("alpha", "beta")  # in the configurations of models made of Hopfield layers


class LiveSettings:
    """
    alpha and beta of a model, in its modules and in its configurations.

    Args:
        model (`torch.nn.Module`): A converted model, or one made of Hopfield layers; also wrapped (DDP, FSDP, compiled).
    """

    def __init__(self, model: nn.Module) -> None:
        model = extract_model_from_parallel(model, keep_torch_compile=False)
        modules = [module for module in model.modules() if isinstance(module, RetrievalParameters)]
        if not modules:
            raise ValueError(
                f"{type(model).__name__} has no layer that retrieves sparsely, so there is nothing to schedule. Convert it "
                "with to_sparse_hopfield."
            )
        self.retrievals = [module for module in modules if isinstance(module, LayerRetrieval)]
        self.layers = [module for module in modules if not isinstance(module, LayerRetrieval)]
        self._devices = {
            child: getattr(next(parent.parameters(), None), "device", None)
            for parent in model.modules()
            for child in parent.children()
            if isinstance(child, RetrievalParameters)
        }
        self._find_configs(model)
        self._find_layer_configs(model)

    def _find_configs(self, model: Any) -> None:
        """The configurations of converted attention, and which one each module takes its settings from."""
        self.configs = [config for config in configs_of(model) if getattr(config, ATTENTION_NAME, None) is not None]
        for config in self.configs:
            config.sparse_hopfield = SparseHopfieldConfig.from_dict(config.sparse_hopfield)
        if any(self._number_of_config(retrieval) is None for retrieval in self.retrievals):
            model.config.sparse_hopfield = SparseHopfieldConfig()  # the defaults, not written down until now
            self.configs.append(model.config)
        for retrieval in self.retrievals:
            retrieval.remember(config for config, _ in retrieval.stated)
        self._places = {retrieval: self._number_of_config(retrieval) for retrieval in self.retrievals}

    def _number_of_config(self, retrieval: LayerRetrieval) -> int | None:
        equal = (i for i, config in enumerate(self.configs) if config.sparse_hopfield == retrieval.source)
        return next(equal, None)

    def _find_layer_configs(self, model: nn.Module) -> None:
        """The configurations with fields alpha and beta, of models made of Hopfield layers."""
        self.layer_configs = [
            config
            for config in (configs_of(model) if self.layers else [])
            if config not in self.configs and any(hasattr(config, name) for name in _NAMES)
        ]
        if self.layers and not self.layer_configs:
            logger.warning(
                "%s has no configuration with the fields alpha and beta, so scheduled values are not saved with it.",
                type(model).__name__,
            )

    def refuse_learned(self, names: Iterable[str]) -> None:
        """Raise if one of these (`"alpha"`, `"beta"`) is learned anywhere."""
        for name in names:
            if any(getattr(module, f"learn_{name}") for module in (*self.retrievals, *self.layers)):
                raise ValueError(
                    f"{name}_schedule cannot move {name}: the model learns it. Use learn_{name}=False or no schedule."
                )

    def read(self) -> dict[str, Any]:
        """All values, in a form that JSON can hold."""
        return {
            "configs": [config.sparse_hopfield.to_dict() for config in self.configs],
            "layer_configs": [
                {name: getattr(config, name) for name in _NAMES if hasattr(config, name)}
                for config in self.layer_configs
            ],
            "layers": [{name: _plain(module.configured(name)) for name in _NAMES} for module in self.layers],
        }

    def write(
        self,
        settings: dict[str, Any],
        as_tensors: Sequence[str] = (),
        restart_learned: Collection[RetrievalParameters] = (),
    ) -> None:
        """
        Set all values.

        Args:
            settings (`dict`): In the form of [`~LiveSettings.read`].
            as_tensors (`Sequence[str]`, *optional*):
                Which of `"alpha"` and `"beta"` modules hold as tensors, for a compiled model.
            restart_learned (`Collection[RetrievalParameters]`, *optional*):
                The modules whose learned values are set, too, and continue from there.
        """
        for config, values in zip(self.configs, settings["configs"], strict=True):
            config.sparse_hopfield = SparseHopfieldConfig.from_dict(values)
        for retrieval, number in self._places.items():
            assert number is not None  # `_find_configs` has added one
            source = self.configs[number].sparse_hopfield
            # a patched family may not keep its heads apart: its values stay numbers
            tensors = () if retrieval.patched_class else as_tensors
            self._set(retrieval, source.for_layer(retrieval.name), tensors, retrieval in restart_learned)
            retrieval.source = source
            retrieval.remember(config for config, _ in retrieval.stated)
        for config, values in zip(self.layer_configs, settings["layer_configs"], strict=True):
            for name, value in values.items():
                setattr(config, name, value)
        for module, values in zip(self.layers, settings["layers"], strict=True):
            self._set(module, values, as_tensors, module in restart_learned)

    def _set(
        self, module: RetrievalParameters, values: dict[str, Any], as_tensors: Sequence[str], restart: bool
    ) -> None:
        names = [name for name in HEAD_FIELDS if name in values]
        written = {name: values[name] for name in names if restart or not getattr(module, f"learn_{name}")}
        module.set(**written, as_tensors=as_tensors, device=self._devices[module])


def _plain(value: Numbers) -> float | list[float]:
    return list(value) if isinstance(value, tuple) else value


def apply_settings(model: PreTrainedModel, settings: dict[str, dict[str, torch.Tensor]]) -> None:
    """
    Set alpha, beta and length_power of single attention modules of a sparse model. What is learned continues from the new values.

    Args:
        model ([`~transformers.PreTrainedModel`]): A model that retrieves sparsely.
        settings (`dict[str, dict[str, torch.Tensor]]`): Path of an attention module to its settings, one or one per head of each.
    """
    live = LiveSettings(model)
    tree = live.read()
    sites = [site for site in attention_sites(model) if site.is_sparse]
    for site in sites:
        if site.name not in settings:
            continue
        key = _shortest_name(site, sites, model)
        values = {name: _number_or_list(value) for name, value in settings[site.name].items()}
        for config, content in zip(live.configs, tree["configs"], strict=True):
            if config.sparse_hopfield == site.settings:  # parts of a model may have copies of its configuration
                overrides = content["overrides"]
                overrides[key] = {**overrides.pop(key, {}), **values}  # at the end, where it wins over patterns
    named = {site.module.sparse_hopfield for site in sites if site.name in settings}
    live.write(tree, restart_learned=[retrieval for retrieval in live.retrievals if retrieval in named])


def _shortest_name(site: Site, sites: list[Site], model: PreTrainedModel) -> str:
    """The path of an attention module without the name of the base model, so that the base model alone finds it, too."""
    short = site.name.removeprefix(f"{model.base_model_prefix}.")
    matches = [other.name for other in sites if layer_matches(short, other.name)]
    return short if matches == [site.name] else site.name


def _number_or_list(values: torch.Tensor) -> float | list[float]:
    """Settings as a configuration holds them: rounded to six digits, one number where there is one."""
    rounded = [float(f"{value:.6g}") for value in values.reshape(-1).tolist()]
    return rounded if len(rounded) > 1 else rounded[0]
