# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The model type `sparse_hopfield`: for any family, on demand, a configuration class and model classes of its own.

`BertForMaskedLM` becomes `SparseHopfieldBertForMaskedLM`, a subclass whose configuration says
`"model_type": "sparse_hopfield"` and `"base_model_type": "bert"`. transformers without this package does not know that
model type, so what is saved comes back sparse or fails loudly; with `trust_remote_code=True` it imports this package
through the few lines saved with the checkpoint.

This module is imported while transformers' `configuration_auto` is: what else it needs, it imports later.
"""

import copy
import functools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import transformers
from transformers.configuration_utils import PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from ..configuration import SparseHopfieldConfig


if TYPE_CHECKING:
    from transformers import PreTrainedModel

MODEL_TYPE = "sparse_hopfield"
PREFIX = "SparseHopfield"
REMOTE_CODE_FILE = "configuration_sparse_hopfield.py"
REMOTE_CODE = '''"""Loads this checkpoint with `trust_remote_code=True`. It needs the package: pip install hf_sparse_hopfield"""

from hf_sparse_hopfield.integration.auto import SparseHopfieldAutoConfig  # noqa: F401
'''


class FamilyType(str):
    """
    The model type `sparse_hopfield` of a family, which also answers to the family's own: transformers asks for it in
    places, for example whether `config.model_type == "whisper"`, and the model still is one.

    Args:
        base_model_type (`str`): The family.
    """

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
    """What transformers finds under the model type `sparse_hopfield`: reads `base_model_type` and makes the right class."""

    model_type = MODEL_TYPE

    @classmethod
    def from_dict(cls, config_dict: dict, **kwargs):
        base_model_type = config_dict.get("base_model_type")
        if base_model_type not in CONFIG_MAPPING:
            raise ValueError(
                f"The configuration has model_type={MODEL_TYPE!r} and base_model_type={base_model_type!r}, which is not a "
                f"model type of transformers {transformers.__version__}. A converted checkpoint names its family there."
            )
        config_class = sparse_config_class(CONFIG_MAPPING[base_model_type])
        return config_class.from_dict({key: config_dict[key] for key in config_dict if key != "model_type"}, **kwargs)


CONFIG_MAPPING.register(MODEL_TYPE, SparseHopfieldAutoConfig, exist_ok=True)


@functools.cache
def sparse_config_class(base: type[PreTrainedConfig]) -> type[PreTrainedConfig]:
    """
    The sparse subclass of a configuration class, known to the Auto classes.

    Args:
        base (`type`): Configuration class of a family, such as `BertConfig`.
    """

    def __init__(self, **kwargs):
        kwargs.pop("base_model_type", None)
        if kwargs.get("attn_implementation") is None:
            kwargs["attn_implementation"] = MODEL_TYPE
        base.__init__(self, **kwargs)
        # Once more, because some composite configurations make their parts after the first time.
        self._attn_implementation = kwargs["attn_implementation"]
        _mark(self)

    def to_dict(self):
        return base.to_dict(self) | {"model_type": MODEL_TYPE}  # a plain string, for whatever writes it

    def save_pretrained(self, save_directory, *args, **kwargs):
        Path(save_directory).mkdir(parents=True, exist_ok=True)
        Path(save_directory, REMOTE_CODE_FILE).write_text(REMOTE_CODE, encoding="utf-8")
        base.save_pretrained(self, save_directory, *args, **kwargs)

    config_class = type(
        f"{PREFIX}{base.__name__}",
        (base,),
        {
            "__init__": __init__,
            "__module__": __name__,
            "__doc__": f"[`{base.__name__}`] of a model that retrieves sparsely.",
            "model_type": FamilyType(base.model_type),
            "base_config_class": base,
            "to_dict": to_dict,
            "save_pretrained": save_pretrained,
        },
    )
    _register_with_auto_classes(base, config_class)
    return config_class


def _mark(config: PreTrainedConfig) -> None:
    config.base_model_type = type(config).base_config_class.model_type
    config.sparse_hopfield = SparseHopfieldConfig.from_dict(getattr(config, "sparse_hopfield", None))
    config.auto_map = {"AutoConfig": f"{REMOTE_CODE_FILE.removesuffix('.py')}.{SparseHopfieldAutoConfig.__name__}"}


def sparse_model_class(
    base: "type[PreTrainedModel]", base_config: type[PreTrainedConfig] | None = None
) -> "type[PreTrainedModel]":
    """
    The sparse subclass of a model class.

    Args:
        base (`type`): Model class of a family, such as `BertForMaskedLM`.
        base_config (`type`, *optional*): Its configuration class, if it is not `base.config_class`.
    """
    return _sparse_model_class(base, sparse_config_class(base_config or base.config_class))


@functools.cache
def _sparse_model_class(
    base: "type[PreTrainedModel]", config_class: type[PreTrainedConfig]
) -> "type[PreTrainedModel]":
    return type(
        f"{PREFIX}{base.__name__}",
        (base,),
        {
            "__module__": __name__,
            "__doc__": f"[`{base.__name__}`] that retrieves sparsely.",
            "config_class": config_class,
            "base_model_class": base,
        },
    )


def _register_with_auto_classes(base: type[PreTrainedConfig], config_class: type[PreTrainedConfig]) -> None:
    from transformers.models.auto import (
        feature_extraction_auto,
        image_processing_auto,
        modeling_auto,
        processing_auto,
        tokenization_auto,
        video_processing_auto,
    )
    from transformers.models.auto.auto_factory import _LazyAutoMapping

    mappings = {id(value): value for value in vars(modeling_auto).values() if isinstance(value, _LazyAutoMapping)}
    for mapping in mappings.values():
        model_classes = mapping.get(base, None)
        several = isinstance(model_classes, (list, tuple))
        made = tuple(
            _sparse_model_class(model_class, config_class)
            for model_class in (model_classes if several else [model_classes])
            # Some mappings lead from a composite configuration to a model for one of its parts, with a configuration
            # of its own.
            if model_class is not None and issubclass(base, model_class.config_class)
        )
        if made:
            mapping.register(config_class, made if several else made[0], exist_ok=True)
            # Trainer and pipelines also ask for the names of classes.
            names = tuple(model_class.__name__ for model_class in made)
            mapping._model_mapping[f"{MODEL_TYPE} {base.model_type}"] = names if several else names[0]
    for mapping in (
        tokenization_auto.TOKENIZER_MAPPING,
        processing_auto.PROCESSOR_MAPPING,
        image_processing_auto.IMAGE_PROCESSOR_MAPPING,
        feature_extraction_auto.FEATURE_EXTRACTOR_MAPPING,
        video_processing_auto.VIDEO_PROCESSOR_MAPPING,
    ):
        processor = mapping.get(base, None)
        if processor is not None:
            mapping.register(config_class, processor, exist_ok=True)


def __getattr__(name: str):
    # Pickle finds the classes made here by their names.
    base = getattr(transformers, name.removeprefix(PREFIX), None) if name.startswith(PREFIX) else None
    if base is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return sparse_config_class(base) if issubclass(base, PreTrainedConfig) else sparse_model_class(base)


class ClassChange:
    """
    Gives a model the class and the configuration of the other kind, in place, and can take that back.

    Args:
        model ([`~transformers.PreTrainedModel`]): The model.
        to_sparse (`bool`): To the sparse subclass of its class, or back to the class of its family.
    """

    def __init__(self, model: "PreTrainedModel", to_sparse: bool) -> None:
        self.model = model
        old = type(model.config)
        self.old_config_class = old
        if to_sparse:
            self.config_class = sparse_config_class(old)
            self.model_class = sparse_model_class(type(model), old)
        else:
            self.config_class = old.base_config_class
            self.model_class = type(model).base_model_class
        self.old_model_class = type(model)
        self.undo: list[tuple[object, dict]] = []

    def apply(self) -> None:
        """Change the model; nothing else shares its new configuration."""
        from transformers.utils.output_capturing import _CAN_RECORD_REGISTRY

        model, copies = self.model, {}
        for module in model.modules():
            changed = {
                name: self._changed_config(value, copies)
                for name, value in vars(module).items()
                if isinstance(value, PreTrainedConfig)
            }
            self.undo.append((module, {name: vars(module)[name] for name in changed}))
            vars(module).update(changed)
        # transformers keeps how it read the original checkpoint in order to write it back the same way, under the
        # original model type. Under this one it is to write the names and shapes that the model has.
        self.undo.append((model, {"_weight_conversions": vars(model).pop("_weight_conversions", None)}))
        model.__class__ = self.model_class
        _CAN_RECORD_REGISTRY[str(self.model_class)] = model._can_record_outputs

    def revert(self) -> None:
        """Take everything back."""
        self.model.__class__ = self.old_model_class
        for module, attributes in self.undo:
            vars(module).update({name: value for name, value in attributes.items() if value is not None})

    def _changed_config(self, config: PreTrainedConfig, copies: dict[int, object]) -> PreTrainedConfig:
        if id(config) in copies:
            return copies[id(config)]
        changed = copy.deepcopy(config, copies)
        # A part of the model may have a copy of the configuration (the decoder of T5): the same class, changed alike.
        if type(changed) is self.old_config_class:
            changed.__class__ = self.config_class
            # A configuration that was loaded also carries its type itself. The old one would have transformers save the
            # weights under the names of the original checkpoints, which it does not read under the new type.
            vars(changed).pop("model_type", None)
            if hasattr(self.config_class, "base_config_class"):
                _mark(changed)
            else:
                for name in ("base_model_type", "sparse_hopfield", "auto_map"):
                    vars(changed).pop(name, None)
        return changed


@contextmanager
def as_sparse_class(model: "PreTrainedModel") -> Iterator[None]:
    """For the time of the context, a model that is sparse by the name of its attention is of its sparse class."""
    change = ClassChange(model, to_sparse=True)
    change.apply()
    try:
        yield
    finally:
        change.revert()
