# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""From the settings of a model to each of its attention modules. Settings are resolved here and nowhere else.

An attention module takes its settings from the `sparse_hopfield` entry of the nearest configuration: its own, then that of
the innermost model around it, then outwards; without one, the defaults of `SparseHopfieldConfig`.
[`SparseHopfieldConfig.for_layer`] resolves them for the path of the module, and [`bind`] attaches them to the module as
`module.sparse_hopfield`, a [`LayerRetrieval`]. `None` there means that the layer stays dense.
"""

from typing import Any

from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from ..configuration import SparseHopfieldConfig, layer_index, layer_matches
from ..parallel.data import is_sharded
from ..retrieval_parameters import RetrievalParameters
from .families import uses_additive_masks
from .sites import Site, attention_sites, configs_of, number_of_heads, shortened
from .upstream import ATTENTION_NAME, attention_name, set_attention_name, set_own_attention_name


class LayerRetrieval(RetrievalParameters):
    """
    The settings of one attention module, with its live alpha and beta.

    Args:
        name (`str`): Path of the attention module in its model.
        settings (`dict`): alpha, beta, steps, tolerance and backend, as [`SparseHopfieldConfig.for_layer`] gives them.
        num_heads (`int`): Number of heads.
        source ([`SparseHopfieldConfig`]): The settings of the model, from which these are resolved.
    """

    def __init__(self, name: str, settings: dict[str, Any], num_heads: int, source: SparseHopfieldConfig) -> None:
        super().__init__(num_heads, settings["alpha"], settings["beta"], source.learn_alpha, source.learn_beta)
        self.name = name
        self.source = source
        self.steps = settings["steps"]
        self.tolerance = settings["tolerance"]
        self.backend = settings["backend"]
        self.patched_class: type[nn.Module] | None = None  # set if patches.py does the work

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if self.patched_class is not None:  # the process that unpickles it may not have patched the class
            from . import patches

            patches.patch(self.patched_class)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, steps={self.steps}, tolerance={self.tolerance}, backend={self.backend!r}"


def check_current(module: nn.Module, retrieval: LayerRetrieval) -> None:
    """Raise if the module's configuration has other settings than the module was set up with."""
    settings = getattr(getattr(module, "config", None), ATTENTION_NAME, None)
    if settings is None or settings is retrieval.source:
        return
    if SparseHopfieldConfig.from_dict(settings) != retrieval.source:
        raise RuntimeError(
            f"{type(module).__name__} {retrieval.name!r} was set up with {retrieval.source}, but its configuration now has "
            f"sparse_hopfield={settings!r}. "
            'Call `model.set_attn_implementation("sparse_hopfield")` for the change to take effect.'
        )


def resolve(site: Site, model_name: str) -> LayerRetrieval | None:
    """
    The settings of one attention module.

    Args:
        site ([`Site`]): The attention module.
        model_name (`str`): Name of the model, for errors.

    Returns:
        [`LayerRetrieval`] or `None`: `None` if the layer stays dense.
    """
    config = site.settings
    settings = config.for_layer(site.name)
    if settings is None:
        return None
    where = f"{model_name}, layer {site.name or type(site.module).__name__!r} ({type(site.module).__name__})"
    if site.kind.refused:
        raise ValueError(
            f"{where} cannot retrieve sparsely: {site.kind.reason}. Name the layers to make sparse in "
            "`SparseHopfieldConfig(layers=...)`, or use another attention implementation for this part of the model."
        )
    if settings["steps"] > 1 and not site.kind.registry:
        raise ValueError(
            f"{where} computes its weights itself, so its keys are out of reach for steps={settings['steps']}. Use "
            f"steps=1, for this layer alone with overrides={{{site.name!r}: {{'steps': 1}}}}."
        )
    heads = number_of_heads(site)
    per_head = config.learn_alpha or config.learn_beta or any(isinstance(settings[x], list) for x in ("alpha", "beta"))
    if per_head and heads is None:
        raise ValueError(
            f"{where} does not state its number of heads, so alpha and beta can be neither learned nor set per head there."
        )
    if per_head and not site.kind.registry and not site.kind.per_head:
        raise ValueError(
            f"{where} does not keep its heads apart when it computes its weights, so alpha and beta can be neither "
            "learned nor set per head there. Leave it out with `SparseHopfieldConfig(layers=...)`."
        )
    try:
        return LayerRetrieval(site.name, settings, heads or 1, config)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{where}: {error}") from error


def bind(model: PreTrainedModel) -> list[str]:
    """
    Give each attention module of a model its settings, according to the model's configuration.

    A module whose configuration selects another attention loses its settings. All settings are checked before any is
    attached, so that a model stays as it was if something is wrong.

    Args:
        model ([`~transformers.PreTrainedModel`]): The model.

    Returns:
        `list[str]`: Paths of the attention modules that now retrieve sparsely.
    """
    from . import patches

    model_name = type(model).__name__
    sites = attention_sites(model)
    sparse = [site for site in sites if site.is_sparse]
    if not sparse and requests_sparse_hopfield(model):
        raise ValueError(
            f"{model_name} has no softmax attention over keys where sparse_hopfield is selected, so there is nothing to "
            "make sparse. Use another attention implementation for it."
        )
    _check_layer_names(sparse, model_name)
    resolved = [(site, resolve(site, model_name)) for site in sparse]
    if any(retrieval is not None and list(retrieval.parameters()) for _, retrieval in resolved) and is_sharded(model):
        raise RuntimeError(
            f"{model_name} is sharded by FSDP2, which would neither shard nor train learned alpha and beta that come later. "
            "Make the model sparse before it is sharded."
        )
    for site in sites:
        if not site.is_sparse and hasattr(site.module, ATTENTION_NAME):
            delattr(site.module, ATTENTION_NAME)
    for site, retrieval in resolved:
        _attach(site, retrieval)
        owner = next((config for config in site.configs if getattr(config, ATTENTION_NAME, None) is not None), None)
        if owner is not None:
            # complete, and one object, which `check_current` recognises by its identity
            owner.sparse_hopfield = SparseHopfieldConfig.from_dict(owner.sparse_hopfield)
            if retrieval is not None:
                retrieval.source = owner.sparse_hopfield
        if retrieval is not None and not site.kind.registry:
            retrieval.patched_class = type(site.module)
            patches.patch(type(site.module))
    return [site.name for site, retrieval in resolved if retrieval is not None]


def requests_sparse_hopfield(model: nn.Module) -> bool:
    """Whether the configuration of the model, or of a part of it, selects this attention."""
    return any(attention_name(config) == ATTENTION_NAME for config in configs_of(model))


def name_attention(model: PreTrainedModel, attn_implementation: str | dict | None) -> None:
    """
    Write the name of an attention implementation into the configurations of a model.

    Args:
        model ([`~transformers.PreTrainedModel`]): The model.
        attn_implementation (`str` or `dict`, *optional*): As for `set_attn_implementation`; `None` for the default.
    """
    set_attention_name(model.config, attn_implementation)
    parts = [part for part in model.modules() if isinstance(part, PreTrainedModel)]
    for part in parts:
        name = attention_name(part.config) if isinstance(attn_implementation, dict) else attn_implementation
        # Families that are not on the registry choose their attention class when they are built. Ours is the eager one,
        # and the masks must fit it.
        if name != ATTENTION_NAME and uses_additive_masks(type(part.config)):
            name = "eager"
        set_own_attention_name(part.config, name)
        set_own_attention_name(part.config, part.get_correct_attn_implementation(name))
    # A module that is not a model may have its own copy of the configuration: the encoders of CANINE, the rotary
    # embeddings of Granite SWA. Outer models come first, so that the innermost one around a module decides.
    owned = {id(part.config) for part in parts}
    for part in parts:
        for module in part.modules():
            config = getattr(module, "config", None)
            if isinstance(config, PreTrainedConfig) and id(config) not in owned:
                set_own_attention_name(config, attention_name(part.config))


def is_converted(model: nn.Module) -> bool:
    """Whether a model is of a sparse class, made in `auto.py`."""
    return hasattr(type(model), "base_model_class")


def has_bound_attention(model: nn.Module) -> bool:
    """Whether any attention module of the model retrieves sparsely."""
    return any(isinstance(module, LayerRetrieval) for module in model.modules())


def has_sparse_retrieval(model: nn.Module) -> bool:
    """Whether a model has sparse retrieval: converted, by the name of its attention, or made of Hopfield layers."""
    return is_own_model(model) or any(isinstance(module, RetrievalParameters) for module in model.modules())


def is_own_model(model: nn.Module) -> bool:
    """Whether a model is of one of the classes in `models/`."""
    return type(model).__module__.startswith("hf_sparse_hopfield.models.")


def _attach(site: Site, retrieval: LayerRetrieval | None) -> None:
    old = getattr(site.module, ATTENTION_NAME, None)
    if hasattr(site.module, ATTENTION_NAME):
        delattr(site.module, ATTENTION_NAME)  # torch keeps modules and plain attributes apart
    if retrieval is not None:
        parameter = next(site.module.parameters(), None)
        if parameter is not None:
            dtype = parameter.dtype if parameter.is_floating_point() else None
            retrieval.to(device=parameter.device, dtype=dtype)
        if old is not None:
            learned = {name: value for name, value in old.state_dict().items() if name in retrieval.state_dict()}
            retrieval.load_state_dict(learned, strict=False)
        retrieval.train(site.module.training)
    setattr(site.module, ATTENTION_NAME, retrieval)


def _check_layer_names(sites: list[Site], model_name: str) -> None:
    for config in {id(site.settings): site.settings for site in sites}.values():
        names = [site.name for site in sites if site.settings == config]
        for layer in config.layer_names:
            if any(layer_matches(layer, name) for name in names):
                continue
            indices = sorted({index for name in names if (index := layer_index(name)) is not None})
            raise ValueError(
                f"{model_name} has no attention layer {layer!r}, which `sparse_hopfield.layers` or `.overrides` names; it "
                f"has the layer indices {indices} and the attention modules {shortened(names)}."
            )
