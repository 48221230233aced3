# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The tokenizer of a training script: the model's, or one trained on the data."""

from collections.abc import Iterable
from typing import Any

from model_loading import ModelArguments
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast


_SPECIAL = {"pad": "<pad>", "bos": "<s>", "eos": "</s>", "unk": "<unk>", "mask": "<mask>"}


def load_tokenizer(model: ModelArguments, texts: Iterable[str], template: str | None = "<s> $A </s>") -> Any:
    """
    Load the tokenizer of the model or, for a new model, train one: byte-level BPE with `<pad>`, `<s>`, `</s>`, `<unk>` and
    `<mask>`.

    Args:
        model ([`ModelArguments`]): The model.
        texts (`Iterable[str]`): Texts to train on.
        template (`str`, *optional*): Special tokens around a text.
    """
    name = model.tokenizer_name or model.model_name_or_path
    return AutoTokenizer.from_pretrained(name) if name else _train_tokenizer(texts, model.vocab_size, template)


def _train_tokenizer(texts: Iterable[str], vocab_size: int, template: str | None) -> PreTrainedTokenizerFast:
    special = list(_SPECIAL.values())
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    if template:
        pairs = [(token, special.index(token)) for token in ("<s>", "</s>")]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=template, pair=template.replace("$A", "$A </s> $B"), special_tokens=pairs
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        **{f"{name}_token": token for name, token in _SPECIAL.items()},
        cls_token="<s>",
        sep_token="</s>",
        model_input_names=["input_ids", "attention_mask"],
    )


def token_values(model: ModelArguments, tokenizer: Any) -> dict[str, int]:
    """Configuration values that a tokenizer determines for a new model; none for a pretrained one."""
    if model.model_name_or_path:
        return {}
    names = ("pad_token_id", "bos_token_id", "eos_token_id")
    return {"vocab_size": len(tokenizer), **{name: getattr(tokenizer, name) for name in names}}
