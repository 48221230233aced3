# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The model type `sparse_hopfield`: a configuration class and model classes for any family, made on demand.

`BertForMaskedLM` becomes `SparseHopfieldBertForMaskedLM`, a subclass whose configuration has
`"model_type": "sparse_hopfield"`, `"base_model_type": "bert"` and `"attn_implementation": "sparse_hopfield"`. transformers
without this package knows neither that model type nor that attention, so a saved model loads as sparse or fails with an
error, and never runs dense. With `trust_remote_code=True` transformers imports this package through a short file that is
saved with the checkpoint.

transformers imports this module together with its own `configuration_auto`; imports of anything later stay inside functions.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import transformers
from transformers.configuration_utils import PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from ..checks import shown
from ..configuration import MOST_ENTRIES, SparseHopfieldConfig
from ..models import OWN_MODELS
from ..remote_code import auto_map, write_remote_code
from .upstream import ATTENTION_NAME, name_auto_class, set_attention_name, set_config_class, swap_class


if TYPE_CHECKING:
    from transformers import PreTrainedModel

MODEL_TYPE = "sparse_hopfield"
PREFIX = "SparseHopfield"

_CONFIG_CLASSES: dict[type[PreTrainedConfig], type[PreTrainedConfig]] = {}
_MODEL_CLASSES: "dict[tuple[type[PreTrainedModel], type[PreTrainedConfig]], type[PreTrainedModel]]" = {}


class FamilyType(str):
    """
    The model type `sparse_hopfield`, which also equals the type of its family: transformers compares
    `config.model_type == "whisper"` in places, and a converted model still is one.

    Args:
        base_model_type (`str`): The family.
    """

    base_model_type: str

    def __new__(cls, base_model_type: str) -> "FamilyType":
        self = super().__new__(cls, MODEL_TYPE)
        self.base_model_type = base_model_type
        return self

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other) is True or other == self.base_model_type

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


class SparseHopfieldAutoConfig(PreTrainedConfig):
    """The configuration class that transformers finds for the model type `sparse_hopfield`. It makes that of the family."""

    model_type = MODEL_TYPE

    def __new__(cls, **kwargs: Any) -> Any:
        # `AutoConfig.for_model`, and configurations with a converted part, pass the entries of a saved configuration
        return cls.from_dict(kwargs) if kwargs else super().__new__(cls)

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """
        Make the configuration of the family that `base_model_type` names.

        Args:
            config_dict (`dict[str, Any]`): The saved configuration.
            **kwargs: Arguments of [`~transformers.PreTrainedConfig.from_dict`].
        """
        config_class = sparse_config_class(_base_config_class(config_dict.get("base_model_type")))
        return config_class.from_dict({key: config_dict[key] for key in config_dict if key != "model_type"}, **kwargs)


def _base_config_class(base_model_type: Any) -> type[PreTrainedConfig]:
    """The configuration class of the family that a saved configuration names."""
    known = isinstance(base_model_type, str) and base_model_type in CONFIG_MAPPING
    if not known or base_model_type == MODEL_TYPE or base_model_type in OWN_MODELS:
        raise ValueError(
            f"The configuration has model_type={MODEL_TYPE!r} and base_model_type={shown(base_model_type)}, which is not a "
            f"model type of transformers {transformers.__version__}. A converted checkpoint names its family there."
        )
    return CONFIG_MAPPING[base_model_type]


def _check_saved(config_dict: dict[str, Any]) -> None:
    """Raise unless a saved configuration has settings, and architectures that are models if transformers knows them."""
    if config_dict.get(ATTENTION_NAME) is None:
        raise ValueError(
            f"The configuration has model_type={MODEL_TYPE!r} but no settings under {ATTENTION_NAME!r} (alpha, beta, layers): "
            "the defaults would give another model. Restore the entry from the original config.json."
        )
    architectures = config_dict.get("architectures")
    if architectures is None:
        return
    if not isinstance(architectures, (list, tuple)) or not all(isinstance(name, str) for name in architectures):
        raise TypeError(f"architectures must be a list of names of model classes, got {shown(architectures)}.")
    for name in architectures[:MOST_ENTRIES]:
        base = getattr(transformers, name.removeprefix(PREFIX), None)
        is_model = isinstance(base, type) and issubclass(base, transformers.PreTrainedModel)
        if not name.isidentifier() or (base is not None and not is_model):
            raise ValueError(f"architectures names {shown(name)}, which is not a model class.")


def refuse_dense_config(path: Any, config: Any, options: dict[str, Any]) -> None:
    """
    Raise if a sparse checkpoint is to be loaded with the configuration of a dense model.

    Args:
        path (`str` or `os.PathLike`): The checkpoint.
        config ([`~transformers.PreTrainedConfig`], `str` or `os.PathLike`): The configuration that was given for it.
        options (`dict[str, Any]`): The other arguments of `from_pretrained`.
    """
    from .sites import is_converted_config

    is_config = isinstance(config, PreTrainedConfig)
    if (config.name_or_path if is_config else str(config)) == str(path):
        return  # its own
    if is_config and (is_converted_config(config) or getattr(config, ATTENTION_NAME, None) is not None):
        return
    names = ("cache_dir", "force_download", "local_files_only", "proxies", "revision", "subfolder", "token")
    options = {name: options[name] for name in names if name in options}
    entries = {"checkpoint": path} | ({} if is_config else {"config": config})
    types = {name: _saved_model_type(place, options) for name, place in entries.items()}
    if types["checkpoint"] == MODEL_TYPE != types.get("config"):
        raise ValueError(
            f"{str(path)!r} is a sparse_hopfield checkpoint, and the configuration given for it is one of a dense model: leave "
            "config out, or make the model dense on purpose with `hf_sparse_hopfield.to_dense(model)`."
        )


def _saved_model_type(place: Any, options: dict[str, Any]) -> str | None:
    try:
        return PreTrainedConfig.get_config_dict(place, **options)[0].get("model_type")
    except OSError:  # there is none; what that means is for transformers to say
        return None


# At import, not in a function for `upstream.py` to call: unpickling a model imports this module first, and `upstream.py`
# would import it while it is only partly initialised.
CONFIG_MAPPING.register(MODEL_TYPE, SparseHopfieldAutoConfig, exist_ok=True)


def sparse_config_class(base: type[PreTrainedConfig]) -> type[PreTrainedConfig]:
    """
    The sparse subclass of a configuration class, registered with the Auto classes.

    Args:
        base (`type`): Configuration class of a family, such as `BertConfig`.
    """
    if base not in _CONFIG_CLASSES:
        _CONFIG_CLASSES[base] = _make_config_class(base)
        _register_with_auto_classes(base, _CONFIG_CLASSES[base])
    return _CONFIG_CLASSES[base]


def _make_config_class(base: type[PreTrainedConfig]) -> type[PreTrainedConfig]:
    def __init__(self: PreTrainedConfig, **kwargs: Any) -> None:
        kwargs.pop("base_model_type", None)
        if kwargs.get("attn_implementation") is None:
            kwargs["attn_implementation"] = MODEL_TYPE
        base.__init__(self, **kwargs)
        # again, because some composite configurations make their parts after `super().__init__`
        set_attention_name(self, kwargs["attn_implementation"])
        _add_entries(self)

    def from_dict(cls: Any, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        from .adapters import adapters_are_saved

        # peft compares the vocabulary of a model with that of the dense checkpoint that it was converted from
        if adapters_are_saved() and config_dict.get("model_type", MODEL_TYPE) != MODEL_TYPE:
            return base.from_dict(config_dict, **kwargs)
        _check_saved(config_dict)
        settings = SparseHopfieldConfig.from_dict(config_dict[ATTENTION_NAME])  # before anything is done with them
        return base.from_dict.__func__(cls, {**config_dict, ATTENTION_NAME: settings}, **kwargs)  # type: ignore[attr-defined]

    def to_dict(self: PreTrainedConfig) -> dict[str, Any]:
        # A plain string can be written anywhere. The name of the attention is for `BertModel.from_pretrained` and the like:
        # without this package it is unknown, and transformers raises instead of loading a dense model.
        return base.to_dict(self) | {"model_type": MODEL_TYPE, "attn_implementation": MODEL_TYPE}

    def save_pretrained(self: PreTrainedConfig, save_directory: Any, *args: Any, **kwargs: Any) -> None:
        write_remote_code(save_directory, __name__, SparseHopfieldAutoConfig.__name__)
        base.save_pretrained(self, save_directory, *args, **kwargs)

    return type(
        f"{PREFIX}{base.__name__}",
        (base,),
        {
            "__init__": __init__,
            "__module__": __name__,
            "__doc__": f"[`{base.__name__}`] of a model with sparse Hopfield retrieval.",
            "model_type": FamilyType(base.model_type),
            "base_config_class": base,
            "from_dict": classmethod(from_dict),
            "to_dict": to_dict,
            "save_pretrained": save_pretrained,
        },
    )


def _add_entries(config: PreTrainedConfig) -> None:
    """Write the entries that a sparse configuration has in addition to those of its family."""
    sparse_class: Any = type(config)
    entries: Any = config
    entries.base_model_type = sparse_class.base_config_class.model_type
    entries.sparse_hopfield = SparseHopfieldConfig.from_dict(getattr(config, "sparse_hopfield", None))
    entries.auto_map = auto_map(SparseHopfieldAutoConfig.__name__)


def remove_entries(config: PreTrainedConfig) -> None:
    """Remove the entries that only a sparse configuration has."""
    for name in ("base_model_type", ATTENTION_NAME):
        vars(config).pop(name, None)
    if vars(config).get("auto_map") == auto_map(SparseHopfieldAutoConfig.__name__):  # a family may have one of its own
        del vars(config)["auto_map"]


def sparse_model_class(
    base: "type[PreTrainedModel]", base_config: type[PreTrainedConfig] | None = None
) -> "type[PreTrainedModel]":
    """
    The sparse subclass of a model class.

    Args:
        base (`type`): Model class of a family, such as `BertForMaskedLM`.
        base_config (`type`, *optional*, defaults to `base.config_class`): Its configuration class.
    """
    base_config = base.config_class if base_config is None else base_config
    if base_config is None:
        raise ValueError(f"{base.__name__} has no config_class, so it is not a model that can be loaded.")
    return _sparse_model_class(base, sparse_config_class(base_config))


def _sparse_model_class(
    base: "type[PreTrainedModel]", config_class: type[PreTrainedConfig]
) -> "type[PreTrainedModel]":
    if (base, config_class) not in _MODEL_CLASSES:
        _MODEL_CLASSES[base, config_class] = type(
            f"{PREFIX}{base.__name__.removeprefix('FSDP')}",  # the prefix of a model that is sharded by FSDP2
            (base,),
            {
                "__module__": __name__,
                "__doc__": f"[`{base.__name__}`] with sparse Hopfield retrieval.",
                "config_class": config_class,
                "base_model_class": base,
            },
        )
    return _MODEL_CLASSES[base, config_class]


def _register_with_auto_classes(base: type[PreTrainedConfig], config_class: type[PreTrainedConfig]) -> None:
    """Register a sparse configuration class wherever transformers knows the class it is made from."""
    from transformers.models.auto import (
        feature_extraction_auto,
        image_processing_auto,
        modeling_auto,
        processing_auto,
        tokenization_auto,
        video_processing_auto,
    )

    for name, mapping in list(vars(modeling_auto).items()):
        if isinstance(mapping, type(modeling_auto.MODEL_MAPPING)):
            names = getattr(modeling_auto, f"{name}_NAMES", None)  # one mapping has none under this name
            _register_models(mapping, names, base, config_class)
    for processors in (
        tokenization_auto.TOKENIZER_MAPPING,
        processing_auto.PROCESSOR_MAPPING,
        image_processing_auto.IMAGE_PROCESSOR_MAPPING,
        feature_extraction_auto.FEATURE_EXTRACTOR_MAPPING,
        video_processing_auto.VIDEO_PROCESSOR_MAPPING,
    ):
        processor = processors.get(base, None)
        if processor is not None:
            processors.register(config_class, processor, exist_ok=True)


def _register_models(
    mapping: Any, names: dict[str, Any] | None, base: type[PreTrainedConfig], config_class: type[PreTrainedConfig]
) -> None:
    """
    Register the sparse subclasses of the models that a mapping has for a configuration class.

    Args:
        mapping: One of transformers' mappings from configuration classes to model classes, such as `MODEL_MAPPING`.
        names (`dict`, *optional*): Its counterpart from model types to names of classes, which the Trainer searches.
        base (`type`): Configuration class of the family.
        config_class (`type`): Its sparse subclass.
    """
    known = mapping.get(base, None)
    several = isinstance(known, (list, tuple))
    made = tuple(
        _sparse_model_class(model_class, config_class)
        for model_class in (known if several else [known])
        # some mappings lead from a composite configuration to a model of one of its parts, which has another one
        if model_class is not None and (issubclass(base, model_class.config_class) or not base.sub_configs)
    )
    if not made:
        return
    mapping.register(config_class, made if several else made[0], exist_ok=True)
    class_names = tuple(model_class.__name__ for model_class in made)
    name_auto_class(names, f"{MODEL_TYPE} {base.model_type}", class_names if several else class_names[0])


def __getattr__(name: str) -> Any:
    # pickle finds the classes made here by their names
    base = getattr(transformers, name.removeprefix(PREFIX), None) if name.startswith(PREFIX) else None
    if base is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return sparse_config_class(base) if issubclass(base, PreTrainedConfig) else sparse_model_class(base)


def swap_to_sparse_class(model: "PreTrainedModel") -> ExitStack:
    """
    Give a model the sparse subclass of its class and of its configuration class, in place.

    Args:
        model ([`~transformers.PreTrainedModel`]): A model of a dense class.

    Returns:
        `contextlib.ExitStack`: Closing it undoes the change.
    """
    base = getattr(type(model.config), "base_config_class", type(model.config))
    config_class = sparse_config_class(base)

    def convert(config: PreTrainedConfig) -> None:
        # A part of the model may hold a copy of the configuration (the decoder of T5): it has the same class.
        if type(config) is base:
            set_config_class(config, config_class)
            _add_entries(config)

    base_model = getattr(type(model), "base_model_class", type(model))
    return swap_class(model, sparse_model_class(base_model, base), convert)


def swap_to_base_class(model: "PreTrainedModel") -> ExitStack:
    """
    Give a converted model the class of its family and the configuration class of it, in place.

    Args:
        model ([`~transformers.PreTrainedModel`]): A model of a sparse class.

    Returns:
        `contextlib.ExitStack`: Closing it undoes the change.
    """
    sparse_class: Any = type(model)
    sparse_config: Any = type(model.config)
    base_config = sparse_config.base_config_class

    def convert(config: PreTrainedConfig) -> None:
        if type(config) is sparse_config:
            set_config_class(config, base_config)
            remove_entries(config)

    return swap_class(model, sparse_class.base_model_class, convert)


@contextmanager
def as_sparse_class(model: "PreTrainedModel") -> Iterator[None]:
    """
    Within the context, a model that is sparse by the name of its attention, and a part of a converted model, has its sparse
    class. Other models do not change.

    Args:
        model ([`~transformers.PreTrainedModel`]): The model.
    """
    from .binding import has_bound_attention, is_converted

    converted = is_converted(model) and hasattr(type(model.config), "base_config_class")
    if converted or not has_bound_attention(model):
        yield
    else:
        with swap_to_sparse_class(model):
            yield
