# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Makes the models of our own known to the Auto classes, and their checkpoints loadable with `trust_remote_code=True`."""

import functools
import inspect
import os
from pathlib import Path
from typing import Any

from transformers.configuration_utils import PreTrainedConfig

from .. import models


REMOTE_CODE_FILE = "configuration_sparse_hopfield.py"
REMOTE_CODE = '''"""Loads this checkpoint with `trust_remote_code=True`. It needs the package: pip install hf_sparse_hopfield"""

from hf_sparse_hopfield.models import {name}  # noqa: F401
'''


class OwnConfig(PreTrainedConfig):
    """
    Base of the configurations of our own models: registers the models of its type with the Auto classes when the first
    configuration is made, and is saved with the few lines that let transformers find this package.

    Nothing needs a model before there is a configuration, and importing models any earlier could meet modules of
    transformers that are only half imported.
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.auto_map = {"AutoConfig": f"{REMOTE_CODE_FILE.removesuffix('.py')}.{type(self).__name__}"}
        register_models(self.model_type)

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """
        Make a configuration, and let it check what is overridden too: transformers sets it afterwards, unseen.

        Args:
            config_dict (`dict[str, Any]`): What was saved.
            **kwargs: What replaces it, and other arguments of [`~transformers.PreTrainedConfig.from_dict`].

        Returns:
            [`~transformers.PreTrainedConfig`]: The configuration; with `return_unused_kwargs`, also what is none of its own.
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
        Path(save_directory).mkdir(parents=True, exist_ok=True)
        code = REMOTE_CODE.format(name=type(self).__name__)
        Path(save_directory, REMOTE_CODE_FILE).write_text(code, encoding="utf-8")
        super().save_pretrained(save_directory, *args, **kwargs)


def register_configurations() -> None:
    """Register all configurations with `AutoConfig`; for when transformers' `configuration_auto` is imported."""
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
