# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""From the settings of a model to each of its attention modules. Settings are resolved here and nowhere else.

An attention module takes its settings from the `sparse_hopfield` entry of the nearest configuration: its own, then that of
the innermost model around it, then outwards; without one, the defaults of `SparseHopfieldConfig`.
[`SparseHopfieldConfig.for_layer`] resolves them for the path of the module, and [`bind`] attaches them to the module as
`module.sparse_hopfield`, a [`LayerRetrieval`]. `None` there means that the layer stays dense.

A model that comes from a conversion has no other attention, and its settings are never taken for granted: both raise. A model
that is sparse by the name of its attention may change the name, unless that would drop learned alpha and beta; other
settings stay in its configuration.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from weakref import WeakSet

from torch import nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedConfig, PreTrainedModel

from ..backends import available_backends
from ..checks import check_choice, shown
from ..configuration import HEAD_FIELDS, SparseHopfieldConfig, layer_index, layer_matches
from ..parallel.data import is_sharded
from ..retrieval_parameters import RetrievalParameters
from . import uncalibrated
from .compact_masks import note_code_around
from .families import uses_additive_masks
from .sites import (
    Site,
    attention_sites,
    configs_of,
    is_converted_config,
    number_of_heads,
    owner_of_settings,
    shortened,
    with_parts,
)
from .upstream import (
    ATTENTION_NAME,
    attention_name,
    is_this_attention,
    keep_attention_in_generate,
    set_attention_name,
    set_own_attention_name,
)


_TO_DENSE = "make the model dense on purpose with `hf_sparse_hopfield.to_dense(model)`"


class LayerRetrieval(RetrievalParameters):
    """
    The settings of one attention module, with its live alpha and beta.

    Args:
        name (`str`): Path of the attention module in its model.
        settings (`dict`): alpha, beta, length_power, steps, tolerance and backend, as [`SparseHopfieldConfig.for_layer`] gives them.
        num_heads (`int`): Number of heads.
        source ([`SparseHopfieldConfig`]): The settings of the model, from which these are resolved.
    """

    # The configurations around the module, nearest first, each with the settings it had when they were resolved.
    stated: Sequence[tuple[PreTrainedConfig, Any]] = ()
    guard: RemovableHandle | None = None  # of the hook that checks the name of the attention
    awaits_weights = uncalibrated = False  # see uncalibrated.py

    def __init__(self, name: str, settings: dict[str, Any], num_heads: int, source: SparseHopfieldConfig) -> None:
        super().__init__(
            num_heads,
            **{field: settings[field] for field in HEAD_FIELDS},
            **{f"learn_{field}": source[f"learn_{field}"] for field in HEAD_FIELDS},
        )
        self.name = name
        self.source = source
        self.steps = settings["steps"]
        self.tolerance = settings["tolerance"]
        self.backend = settings["backend"]
        self.patched_class: type[nn.Module] | None = None  # set if patches.py does the work

    def remember(self, configs: Iterable[PreTrainedConfig]) -> None:
        """Note which settings the configurations around the module have now, for [`check_current`]."""
        self.stated = [(config, getattr(config, ATTENTION_NAME, None)) for config in configs]

    def set(self, *args: Any, **kwargs: Any) -> None:
        super().set(*args, **kwargs)
        self.awaits_weights = self.uncalibrated = False

    def train(self, mode: bool = True) -> "LayerRetrieval":
        self.uncalibrated = self.uncalibrated and not mode
        return super().train(mode)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if self.patched_class is not None:  # the process that unpickles it may not have patched the class
            from . import patches

            patches.patch(self.patched_class)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, steps={self.steps}, tolerance={self.tolerance}, backend={self.backend!r}"


def check_current(module: nn.Module, retrieval: LayerRetrieval) -> None:
    """Raise if a configuration around the module has other settings than when the module was set up, or none any more."""
    for config, before in retrieval.stated:
        settings = getattr(config, ATTENTION_NAME, None)
        if settings is before:
            continue
        if None in (settings, before) or _parsed(settings) != _parsed(before):
            raise RuntimeError(
                f"{type(module).__name__} {retrieval.name!r} was set up with {retrieval.source}, but its configuration now "
                f"has sparse_hopfield={shown(settings)}. Restore the settings (`config.sparse_hopfield = ...`), or call "
                '`model.set_attn_implementation("sparse_hopfield")` for a change to take effect.'
            )


def _parsed(settings: Any) -> SparseHopfieldConfig:
    return SparseHopfieldConfig.from_dict(settings)


def check_selected(module: nn.Module, *args: Any) -> None:
    """Raise if the configuration of an attention module that retrieves sparsely selects another attention by now."""
    name = attention_name(module.config)  # type: ignore[arg-type]
    if not is_this_attention(name):
        raise RuntimeError(
            f"{type(module).__name__} {module.sparse_hopfield.name!r} was set up to retrieve sparsely, but its "  # type: ignore[union-attr]
            f"configuration now selects the attention {name!r}: call "
            f'`model.set_attn_implementation("sparse_hopfield")`, or {_TO_DENSE}.'
        )


def refuse_other_attention(model: PreTrainedModel, attn_implementation: str | dict | None) -> None:
    """
    Raise if an attention other than ours is named for a model that comes from a conversion.

    Args:
        model ([`~transformers.PreTrainedModel`]): The model.
        attn_implementation (`str` or `dict`, *optional*): As for `set_attn_implementation`; `None` for the default.
    """
    for name in _names(attn_implementation):
        raise ValueError(
            f"attn_implementation={name!r} would run the sparse_hopfield model {type(model).__name__} with dense attention: "
            f"leave attn_implementation out, or {_TO_DENSE}."
        )


def _names(attn_implementation: Any) -> Iterator[Any]:
    """The names of other attentions in an `attn_implementation`, which may be a dict of dicts."""
    if isinstance(attn_implementation, dict):
        for part in attn_implementation.values():
            yield from _names(part)
    elif attn_implementation is not None and not is_this_attention(attn_implementation):
        yield attn_implementation


def check_switch(model: PreTrainedModel, attn_implementation: str | dict | None) -> None:
    """
    Raise if another attention would make a converted model dense, or drop what a model has learned.

    Args:
        model ([`~transformers.PreTrainedModel`]): The model, or a part of one.
        attn_implementation (`str` or `dict`, *optional*): As for `set_attn_implementation`.
    """
    retrievals = [module for module in model.modules() if isinstance(module, LayerRetrieval)]
    around = (config for retrieval in retrievals for config, _ in retrieval.stated)
    if comes_from_conversion(model) or any(map(is_converted_config, around)):
        refuse_other_attention(model, attn_implementation)
    for name in _names(attn_implementation):
        if any(retrieval.source.learned for retrieval in retrievals):
            raise ValueError(
                f"attn_implementation={name!r} would drop the alpha and beta that {type(model).__name__} has learned: keep "
                f'"sparse_hopfield", or {_TO_DENSE}.'
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
    try:
        check_choice("backend", settings["backend"], ("auto", *available_backends()))
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    heads = number_of_heads(site)
    per_head = bool(config.learned) or any(isinstance(settings[field], list) for field in HEAD_FIELDS)
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

    A module whose configuration selects another attention loses its settings; in a converted model that is an error. All
    settings are checked before any is attached, so that a model stays as it was if something is wrong.

    Args:
        model ([`~transformers.PreTrainedModel`]): The model.

    Returns:
        `list[str]`: Paths of the attention modules that now retrieve sparsely.
    """
    from . import patches

    model_name = type(model).__name__
    sites = attention_sites(model)
    _check_converted(model, sites)
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
        if not site.is_sparse:
            _detach(site.module)
    for site, retrieval in resolved:
        _attach(site, retrieval)
        owner = owner_of_settings(site.configs)
        if owner is not None:
            # complete, and one object, which `check_current` recognises by its identity
            owner.sparse_hopfield = SparseHopfieldConfig.from_dict(owner.sparse_hopfield)
            if retrieval is not None:
                retrieval.source = owner.sparse_hopfield
        if retrieval is not None and not site.kind.registry:
            retrieval.patched_class = type(site.module)
            patches.patch(type(site.module))
    bound = [(site, retrieval) for site, retrieval in resolved if retrieval is not None]
    for site, retrieval in bound:  # by now all settings are complete
        retrieval.remember(site.configs)
    if any(retrieval.patched_class is not None for _, retrieval in bound):
        _watch_packing(model)
    keep_attention_in_generate(type(model))
    note_code_around(model, sites)
    return [site.name for site, _ in bound]


def _check_converted(model: PreTrainedModel, sites: list[Site]) -> None:
    """Raise if a converted model, or a converted part of a model, has another attention or no settings."""
    for site in sites:
        if not comes_from_conversion(model) and not any(map(is_converted_config, site.configs)):
            continue
        if not site.is_sparse:
            refuse_other_attention(model, attention_name(site.configs[0]) or "None")
        if any(is_converted_config(config) and owner_of_settings([config]) is None for config in site.configs):
            raise ValueError(
                f"{type(model).__name__} comes from a conversion, but its configuration has no sparse_hopfield settings (alpha, "
                "beta, layers): the defaults would give another model. Restore the entry `sparse_hopfield` of its "
                "config.json, or set `config.sparse_hopfield = SparseHopfieldConfig(...)`."
            )


def check_saved_settings(model: PreTrainedModel) -> None:
    """
    Raise if a checkpoint of the model would come back with other settings than the model has now.

    Args:
        model ([`~transformers.PreTrainedModel`]): A sparse model, or a part of one.
    """
    if not has_bound_attention(model):
        return  # made of Hopfield layers
    saved = with_parts([model.config])
    for site in attention_sites(model):
        if not site.is_sparse:
            raise ValueError(
                f"{type(model).__name__} is sparse in some parts, by the name of their attention, and {site.name!r} has "
                f"{attention_name(site.configs[0])!r}; a checkpoint does not keep these names. Name the sparse parts "
                "instead: `to_sparse_hopfield(model, SparseHopfieldConfig(layers=[...]))`."
            )
        retrieval: LayerRetrieval | None = getattr(site.module, ATTENTION_NAME, None)
        if retrieval is not None:
            check_current(site.module, retrieval)
        running = None if retrieval is None else _settings_at(retrieval.source, retrieval.name)
        owner = owner_of_settings(config for config in site.configs if _is_among(config, saved))
        if owner is not None and _settings_at(_parsed(owner.sparse_hopfield), site.name) == running:
            continue
        if owner is None and not (retrieval and any(settings is not None for _, settings in retrieval.stated)):
            continue  # the defaults, which the checkpoint states
        raise ValueError(
            f"{type(model).__name__} would not come back from a checkpoint as it is now: the settings of {site.name!r} are not "
            "those of the configuration that is saved with it, or are in the configuration of the model around it. Save "
            "the whole model, or state them in `model.config.sparse_hopfield`."
        )


def _settings_at(settings: SparseHopfieldConfig, name: str) -> tuple[Any, ...] | None:
    layer = settings.for_layer(name)
    return None if layer is None else (layer, settings.learned)


def _is_among(config: PreTrainedConfig, saved: list[PreTrainedConfig]) -> bool:
    """Whether a configuration is one of those that are saved, or a copy of one (as the decoder of T5 has)."""
    own = getattr(config, ATTENTION_NAME, None)
    return any(
        one is config or (type(one) is type(config) and getattr(one, ATTENTION_NAME, None) == own) for one in saved
    )


def _watch_packing(model: PreTrainedModel) -> None:
    from .packing import refuse_mixing

    if model not in _WATCHED:
        model.register_forward_pre_hook(refuse_mixing, with_kwargs=True)
        _WATCHED.add(model)


_WATCHED: WeakSet[nn.Module] = WeakSet()


def requests_sparse_hopfield(model: nn.Module) -> bool:
    """Whether the configuration of the model, or of a part of it, selects this attention."""
    return any(is_this_attention(attention_name(config)) for config in configs_of(model))


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
        if not is_this_attention(name) and uses_additive_masks(type(part.config)):
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


def comes_from_conversion(model: PreTrainedModel) -> bool:
    """Whether a model is converted, a part of a converted one, or loaded from its checkpoint as a model of its family."""
    return is_converted(model) or is_converted_config(model.config)


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
    old = _detach(site.module)  # torch keeps modules and plain attributes apart
    if retrieval is not None:
        parameter = next(site.module.parameters(), None)
        if parameter is not None:
            dtype = parameter.dtype if parameter.is_floating_point() else None
            retrieval.to(device=parameter.device, dtype=dtype)
        if old is not None:
            learned = {name: value for name, value in old.state_dict().items() if name in retrieval.state_dict()}
            retrieval.load_state_dict(learned, strict=False)
        retrieval.train(site.module.training)
        if site.kind.registry and isinstance(getattr(site.module, "config", None), PreTrainedConfig):
            retrieval.guard = site.module.register_forward_pre_hook(check_selected)
        retrieval.awaits_weights = old is None and not site.module.training
        retrieval.uncalibrated = getattr(old, "uncalibrated", False)
    setattr(site.module, ATTENTION_NAME, retrieval)
    uncalibrated.note_weights(site.module)


def _detach(module: nn.Module) -> LayerRetrieval | None:
    """Remove the settings of a module, and return them."""
    retrieval = getattr(module, ATTENTION_NAME, None)
    if retrieval is not None and retrieval.guard is not None:
        retrieval.guard.remove()
    if hasattr(module, ATTENTION_NAME):
        delattr(module, ATTENTION_NAME)
    return retrieval


def _check_layer_names(sites: list[Site], model_name: str) -> None:
    for config in {id(site.settings): site.settings for site in sites}.values():
        names = [site.name for site in sites if site.settings == config]
        for layer in config.layer_names:
            if any(layer_matches(layer, name) for name in names):
                continue
            indices = sorted({index for name in names if (index := layer_index(name)) is not None})
            raise ValueError(
                f"{model_name} has no attention layer {shown(layer)}, which `sparse_hopfield.layers` or `.overrides` names; it "
                f"has the layer indices {indices} and the attention modules {shortened(names)}."
            )
