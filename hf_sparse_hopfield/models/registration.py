# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Registers the models of this package with the Auto classes, and saves them so that `trust_remote_code=True` loads them."""

import functools
import inspect
import os
from typing import Any

from transformers.configuration_utils import PreTrainedConfig

from .. import models
from ..remote_code import auto_map, write_remote_code


class OwnConfig(PreTrainedConfig):
    """
    Base of the configurations of this package's models.

    The first configuration of a type registers the models of that type with the Auto classes. No model is needed before,
    and importing one earlier could meet modules of transformers that are only partly imported. A configuration is saved
    with the file that lets `trust_remote_code=True` find this package.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.auto_map = auto_map(type(self).__name__)
        register_models(self.model_type)

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """
        Make a configuration that validates overrides too; transformers sets them afterwards, unchecked.

        Args:
            config_dict (`dict[str, Any]`): The saved configuration.
            **kwargs: Overrides, and other arguments of [`~transformers.PreTrainedConfig.from_dict`].

        Returns:
            [`~transformers.PreTrainedConfig`]: The configuration; with `return_unused_kwargs`, also the arguments that are
            not its own.
        """
        overridden = {name: kwargs.pop(name) for name in inspect.signature(cls.__init__).parameters if name in kwargs}
        return super().from_dict({**config_dict, **overridden}, **kwargs)

    def save_pretrained(self, save_directory: str | os.PathLike, *args: Any, **kwargs: Any) -> None:
        """
        Save, with the code that `trust_remote_code=True` runs.

        Args:
            save_directory (`str` or `os.PathLike`): The folder.
            *args, **kwargs: As for [`~transformers.PreTrainedConfig.save_pretrained`].
        """
        write_remote_code(save_directory, models.__name__, type(self).__name__)
        super().save_pretrained(save_directory, *args, **kwargs)


def register_configurations() -> None:
    """Register all configurations with `AutoConfig`, once transformers' `configuration_auto` is imported."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    for model_type, own in models.OWN_MODELS.items():
        CONFIG_MAPPING.register(model_type, getattr(models, own.configuration), exist_ok=True)


@functools.cache
def register_models(model_type: str) -> None:
    """
    Register the models of one type with their Auto classes.

    Args:
        model_type (`str`): A key of `OWN_MODELS`.
    """
    from transformers.models.auto import modeling_auto

    own = models.OWN_MODELS[model_type]
    for auto_class, name in own.auto_classes.items():
        getattr(modeling_auto, auto_class).register(
            getattr(models, own.configuration), getattr(models, name), exist_ok=True
        )
