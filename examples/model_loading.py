# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The model of a training script, pretrained or new, and its configuration."""

from dataclasses import dataclass, field
from typing import Any

from data_checks import check_labels
from data_splits import LabelledDataArguments
from datasets import Dataset
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel


@dataclass
class ModelArguments:
    """Which model to train: a pretrained one, or a new one from a configuration."""

    model_name_or_path: str | None = field(default=None, metadata={"help": "pretrained model: Hub id or directory"})
    config_name: str | None = field(default=None, metadata={"help": "new model from this configuration: id or path"})
    model_type: str | None = field(default=None, metadata={"help": "new model of this type, such as bert or marian"})
    config_overrides: str | None = field(
        default=None, metadata={"help": "changes to the configuration: hidden_size=256,num_hidden_layers=4"}
    )
    tokenizer_name: str | None = field(
        default=None,
        metadata={"help": "tokenizer: id or path (default: the model's; a new model gets one trained on the data)"},
    )
    vocab_size: int = field(default=8000, metadata={"help": "vocabulary size of a tokenizer trained on the data"})

    def __post_init__(self) -> None:
        given = [name for name in ("model_name_or_path", "config_name", "model_type") if getattr(self, name)]
        if len(given) > 1:
            raise ValueError(f"give only one of model_name_or_path, config_name and model_type, got {given}.")


def load_config(model: ModelArguments, default_type: str, **values: Any) -> PreTrainedConfig:
    """
    Load the configuration of a pretrained model, or make one for a new model.

    Args:
        model ([`ModelArguments`]): The model.
        default_type (`str`): Type of a new model if none is named.
        values: Values determined by the data (labels, tokens). `--config_overrides` takes precedence.
    """
    name = model.model_name_or_path or model.config_name
    config = AutoConfig.from_pretrained(name) if name else AutoConfig.for_model(model.model_type or default_type)
    for key, value in values.items():
        setattr(config, key, value)
    if model.config_overrides:
        config.update_from_string(model.config_overrides)
    return config


def own_config(
    model: ModelArguments,
    config_class: type[PreTrainedConfig],
    fitting: dict[str, Any],
    settings: dict[str, Any],
    required: dict[str, Any],
) -> PreTrainedConfig:
    """
    Return the configuration of one of this package's models: that of a pretrained one, which must fit, or a new one.

    Args:
        model ([`ModelArguments`]): The model.
        config_class (`type`): Class of the configuration.
        fitting (`dict`): Values determined by the data and the arguments.
        settings (`dict`): The remaining values of a new configuration.
        required (`dict`): Values that `--sparse_hopfield False` requires of a pretrained model; empty for a sparse run.
    """
    if not model.model_name_or_path:
        config = load_config(model, config_class.model_type, **fitting, **settings)
        # Rebuilt from its content, because a configuration is checked when it is created, not when a value is set.
        return config_class.from_dict(config.to_dict())
    config = load_config(model, config_class.model_type)
    for name, value in fitting.items():
        if getattr(config, name) != value:
            raise ValueError(f"{model.model_name_or_path} has {name}={getattr(config, name)}, but it is {value} here.")
    for name, value in required.items():
        if getattr(config, name) != value:
            raise ValueError(
                f"sparse_hopfield=False requires {name}={value!r}, but {model.model_name_or_path} has "
                f"{name}={getattr(config, name)!r}."
            )
    return config


def load_model(model: ModelArguments, config: PreTrainedConfig, auto_class: type) -> PreTrainedModel:
    """Load the weights of `--model_name_or_path`, or initialise a new model."""
    if model.model_name_or_path:
        return auto_class.from_pretrained(model.model_name_or_path, config=config)
    return auto_class.from_config(config)


def class_names(model: ModelArguments, data: LabelledDataArguments, splits: dict[str, Dataset]) -> list[str]:
    """Names of the classes in `label_column`, after checking the labels. Without training data they are the model's."""
    names = None
    if "train" not in splits and model.model_name_or_path:
        config = AutoConfig.from_pretrained(model.model_name_or_path)
        names = [config.id2label[number] for number in range(config.num_labels)]
    return check_labels(splits, data.label_column, data.num_labels, names)


def label_values(names: list[str]) -> dict[str, Any]:
    """Configuration values that the classes determine."""
    return {
        "num_labels": len(names),
        "id2label": dict(enumerate(names)),
        "label2id": {name: number for number, name in enumerate(names)},
    }
