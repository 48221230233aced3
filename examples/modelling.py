# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The models of the training scripts: pretrained or fresh, their configurations and tokenizers."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from data_loading import DataArguments, check_labels
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast


@dataclass
class ModelArguments:
    """Which model to train: a pretrained one, or a fresh one from a configuration."""

    model_name_or_path: str | None = field(default=None, metadata={"help": "pretrained model: Hub id or directory"})
    config_name: str | None = field(default=None, metadata={"help": "fresh model from this configuration: id or path"})
    model_type: str | None = field(default=None, metadata={"help": "fresh model of this type, such as bert or marian"})
    config_overrides: str | None = field(
        default=None, metadata={"help": "changes to the configuration: hidden_size=256,num_hidden_layers=4"}
    )
    tokenizer_name: str | None = field(
        default=None, metadata={"help": "tokenizer: id or path (default: the model's; trained here for a fresh model)"}
    )
    vocab_size: int = field(default=8000, metadata={"help": "tokens of a tokenizer that is trained here"})

    def __post_init__(self) -> None:
        given = [name for name in ("model_name_or_path", "config_name", "model_type") if getattr(self, name)]
        if len(given) > 1:
            raise ValueError(f"give one of model_name_or_path, config_name and model_type, got {given}.")


def load_config(model: ModelArguments, default_type: str, **values: Any) -> PreTrainedConfig:
    """
    The configuration, of a pretrained or a fresh model.

    Args:
        model ([`ModelArguments`]): Which.
        default_type (`str`): Type of a fresh model where none is named.
        values: What the data determine (labels, tokens). `--config_overrides` have the last word.
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
    The configuration of a model of our own: that of a pretrained one, which must fit, or a fresh one.

    Args:
        model ([`ModelArguments`]): Which.
        config_class (`type`): Its class.
        fitting (`dict`): What data and arguments determine.
        settings (`dict`): The rest of a fresh one.
        required (`dict`): What a pretrained one must have for `--sparse_hopfield False`; empty for a sparse run.
    """
    if not model.model_name_or_path:
        config = load_config(model, config_class.model_type, **fitting, **settings)
        # Made once more from its content: a configuration checks itself when it is made, not when something in it is set.
        return config_class.from_dict(config.to_dict())
    config = load_config(model, config_class.model_type)
    for name, value in fitting.items():
        if getattr(config, name) != value:
            raise ValueError(f"{model.model_name_or_path} has {name}={getattr(config, name)}, but it is {value} here.")
    for name, value in required.items():
        if getattr(config, name) != value:
            raise ValueError(
                f"sparse_hopfield=False asks for {name}={value!r}, but {model.model_name_or_path} has "
                f"{name}={getattr(config, name)!r}."
            )
    return config


def load_model(model: ModelArguments, config: PreTrainedConfig, auto_class: type) -> PreTrainedModel:
    """The model: weights of `--model_name_or_path`, or fresh ones."""
    if model.model_name_or_path:
        return auto_class.from_pretrained(model.model_name_or_path, config=config)
    return auto_class.from_config(config)


def class_names(model: ModelArguments, data: DataArguments, splits: dict[str, Dataset]) -> list[str]:
    """The classes of checked data with `label_column` and `num_labels`; without training data, those of the model."""
    names = None
    if "train" not in splits and model.model_name_or_path:
        config = AutoConfig.from_pretrained(model.model_name_or_path)
        names = [config.id2label[number] for number in range(config.num_labels)]
    return check_labels(splits, data.label_column, data.num_labels, names)


def label_values(names: list[str]) -> dict[str, Any]:
    """What the classes determine of the configuration."""
    return {
        "num_labels": len(names),
        "id2label": dict(enumerate(names)),
        "label2id": {name: number for number, name in enumerate(names)},
    }


def load_tokenizer(model: ModelArguments, texts: Iterable[str], template: str | None = "<s> $A </s>") -> Any:
    """
    The tokenizer of the model, or one trained here: byte-level BPE with `<pad>`, `<s>`, `</s>`, `<unk>` and `<mask>`.

    Args:
        model ([`ModelArguments`]): Which.
        texts (`Iterable[str]`): To train it on.
        template (`str`, *optional*): What stands around a text.
    """
    name = model.tokenizer_name or model.model_name_or_path
    if name:
        return AutoTokenizer.from_pretrained(name)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<pad>", "<s>", "</s>", "<unk>", "<mask>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=model.vocab_size, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    if template:
        pairs = [(token, special.index(token)) for token in ("<s>", "</s>")]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=template, pair=template.replace("$A", "$A </s> $B"), special_tokens=pairs
        )
    names = dict(zip(("pad", "bos", "eos", "unk", "mask"), special, strict=True))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        **{f"{name}_token": token for name, token in names.items()},
        cls_token="<s>",
        sep_token="</s>",
        model_input_names=["input_ids", "attention_mask"],
    )


def token_values(model: ModelArguments, tokenizer: Any) -> dict[str, int]:
    """What a tokenizer that was trained here determines of the configuration."""
    if model.model_name_or_path:
        return {}
    names = ("pad_token_id", "bos_token_id", "eos_token_id")
    return {"vocab_size": len(tokenizer), **{name: getattr(tokenizer, name) for name in names}}
