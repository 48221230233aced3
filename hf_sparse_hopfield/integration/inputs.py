# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Inputs to try a model on: windows of a text, or random ones of the right form."""

import gzip
import os
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel


def read_text(path: str | os.PathLike) -> str:
    """A text file in UTF-8, which may be compressed with gzip."""
    opener = gzip.open if str(path).endswith(".gz") else open
    with opener(Path(path), "rt", encoding="utf-8") as file:
        return file.read()


def text_batches(
    model: PreTrainedModel,
    tokenizer: Any,
    text: str,
    *,
    length: int = 512,
    count: int = 8,
    batch_size: int = 1,
    seed: int = 0,
    spread: bool = True,
) -> list[dict[str, torch.Tensor]]:
    """
    Windows of a text as model inputs, with the tokens around them that the tokenizer gives a text. Causal language models
    get them as labels, too.

    Args:
        model ([`~transformers.PreTrainedModel`]): What the inputs are for.
        tokenizer: Its tokenizer.
        text (`str`): The text.
        length (`int`, *optional*, defaults to 512): Tokens in a window; less if the model's positions end before.
        count (`int`, *optional*, defaults to 8): Batches, at most.
        batch_size (`int`, *optional*, defaults to 1): Windows in a batch.
        seed (`int`, *optional*, defaults to 0): Chooses the windows.
        spread (`bool`, *optional*, defaults to `True`): Choose windows anywhere; otherwise the first ones.
    """
    text_config = model.config.get_text_config(decoder=not model.config.is_encoder_decoder)
    limit = getattr(text_config, "max_position_embeddings", None)
    length = min(length, limit) if isinstance(limit, int) and limit > 0 else length
    tokens = tokenizer(text, return_tensors="pt", add_special_tokens=False, verbose=False)["input_ids"][0]
    before, after = _special_tokens(tokenizer)
    length = min(length - len(before) - len(after), len(tokens))
    if length < 2:
        raise ValueError(f"a window has {length} tokens of the text, which has {len(tokens)}; it needs at least 2.")
    windows = tokens[: len(tokens) // length * length].view(-1, length)
    before, after = (part.expand(len(windows), -1) for part in (before, after))
    windows = torch.cat([before, windows, after], 1)
    if spread:
        windows = windows[torch.randperm(len(windows), generator=torch.Generator().manual_seed(seed))]
    batches = []
    for window in windows[: count * batch_size].split(batch_size):
        batch = {"input_ids": window}
        if model.config.is_encoder_decoder:
            batch["decoder_input_ids"] = window
        elif _is_causal_language_model(model):
            batch["labels"] = window
        batches.append(batch)
    return batches


def _special_tokens(tokenizer: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """What a tokenizer puts before and after a text, such as `[CLS]` and `[SEP]`."""
    whole, plain = (tokenizer("a", add_special_tokens=special)["input_ids"] for special in (True, False))
    starts = (i for i in range(len(whole)) if whole[i : i + len(plain)] == plain)
    start = next(starts, 0)
    return torch.tensor(whole[:start], dtype=torch.long), torch.tensor(whole[start + len(plain) :], dtype=torch.long)


def _is_causal_language_model(model: PreTrainedModel) -> bool:
    name = type(model).__name__
    return name.endswith(("ForCausalLM", "LMHeadModel")) and not getattr(model.config, "is_encoder_decoder", False)


def random_inputs(
    model: PreTrainedModel, *, batch_size: int = 2, length: int = 32, seed: int = 0
) -> dict[str, torch.Tensor]:
    """
    Random inputs of the form that a model takes.

    Args:
        model ([`~transformers.PreTrainedModel`]): What the inputs are for.
        batch_size (`int`, *optional*, defaults to 2): Samples.
        length (`int`, *optional*, defaults to 32): Tokens of a text.
        seed (`int`, *optional*, defaults to 0): Of everything random.
    """
    generator = torch.Generator().manual_seed(seed)
    config = model.config
    name = model.main_input_name
    text = config.get_text_config()

    def tokens() -> torch.Tensor:
        limit = getattr(text, "max_position_embeddings", None)
        size = min(length, limit - 2) if isinstance(limit, int) and limit > 2 else length
        return torch.randint(0, text.vocab_size, (batch_size, size), generator=generator)

    def noise(*shape: int) -> torch.Tensor:
        return torch.randn(batch_size, *shape, generator=generator, dtype=torch.float32).to(model.dtype)

    if name == "input_ids":
        inputs = {"input_ids": tokens()}
    elif name == "pixel_values":
        vision = getattr(config, "vision_config", config)
        size = getattr(vision, "image_size", None)
        if size is None:
            raise ValueError(f"{type(model).__name__} does not tell its image size: give it a file of inputs.")
        height, width = (size, size) if isinstance(size, int) else tuple(size)
        inputs = {"pixel_values": noise(getattr(vision, "num_channels", 3), height, width)}
    elif name == "input_features" and hasattr(config, "num_mel_bins"):
        frames = 2 * config.max_source_positions if hasattr(config, "max_source_positions") else 100
        inputs = {"input_features": noise(config.num_mel_bins, frames)}
    elif name == "input_values":
        inputs = {"input_values": noise(16000)}
    else:
        raise ValueError(f"{type(model).__name__} takes {name!r}, of which no random inputs can be made here.")
    if config.is_encoder_decoder and hasattr(text, "vocab_size"):
        inputs["decoder_input_ids"] = tokens()
    return inputs
