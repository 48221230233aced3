# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Windows of a text as model inputs."""

import gzip
import os
import zlib
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.utils import logging

from ..calibration.recipe import InputOptions
from ..model_running import on_device


logger = logging.get_logger(__name__)

_SHORTEST = 16  # tokens in a window: rows of fewer keys say little about attention


def read_text(path: str | os.PathLike) -> str:
    """Read a text file in UTF-8. A name that ends in `.gz` means that it is compressed with gzip."""
    opener = gzip.open if str(path).endswith(".gz") else open
    try:
        with opener(Path(path), "rt", encoding="utf-8") as file:
            return file.read()
    except (UnicodeDecodeError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        kind = "gzip" if not isinstance(error, UnicodeDecodeError) else "a text in UTF-8"
        raise ValueError(f"{str(path)!r} cannot be read as {kind}: {error}") from error


def text_batches(
    model: PreTrainedModel,
    tokenizer: Any,
    text: str,
    *,
    length: int = InputOptions.length,
    count: int = 8,
    batch_size: int = InputOptions.batch_size,
    seed: int = InputOptions.seed,
    spread: bool = True,
    least: int = 1,
) -> list[dict[str, torch.Tensor]]:
    """
    Cut a text into windows, with the special tokens that the tokenizer puts around a text. For causal language models, the
    windows are also the labels.

    Args:
        model ([`~transformers.PreTrainedModel`]): The model that takes the inputs.
        tokenizer: Its tokenizer, or a processor that has one.
        text (`str`): The text.
        length (`int`, *optional*, defaults to 512): Tokens in a window; fewer if the model has fewer positions.
        count (`int`, *optional*, defaults to 8): Number of batches, at most.
        batch_size (`int`, *optional*, defaults to 1): Windows in a batch.
        seed (`int`, *optional*, defaults to 0): Seed for choosing the windows.
        spread (`bool`, *optional*, defaults to `True`):
            Choose windows from the whole text; otherwise take the first ones.
        least (`int`, *optional*, defaults to 1):
            Batches that there must be. If a text has one window and not as many, they are shorter, with a warning.
    """
    tokenizer = _text_tokenizer(tokenizer)
    if model.main_input_name != "input_ids":
        raise ValueError(f"{type(model).__name__} takes {model.main_input_name!r}, not a text: use random inputs.")
    text_config = model.config.get_text_config(decoder=not model.config.is_encoder_decoder)
    limit = getattr(text_config, "max_position_embeddings", None)
    length = min(length, limit) if isinstance(limit, int) and limit > 0 else length
    tokens = tokenizer(text, return_tensors="pt", add_special_tokens=False, verbose=False)["input_ids"][0]
    before, after = _special_tokens(tokenizer)
    around = len(before) + len(after)
    wanted, least = length - around, least * batch_size
    length = min(wanted, len(tokens) // least)
    if length < min(wanted, _SHORTEST) or length < 2:
        raise ValueError(
            f"the text has {len(tokens)} tokens, which is too little: {least} windows of {max(2, min(wanted, _SHORTEST))} tokens "
            f"are needed at least ({least * max(2, min(wanted, _SHORTEST))} tokens), and {least * wanted} tokens for windows of "
            f"{wanted + around}."
        )
    if least > 1 and len(tokens) < wanted:
        raise ValueError(
            f"the text has {len(tokens)} tokens, which is less than one window of {wanted + around}: {least * wanted} tokens are needed for "
            f"{least} windows, or a length of at most {length + around}."
        )
    if length < wanted:
        logger.warning(
            "The text has %d tokens: windows have %d tokens instead of %d, so that there are %d. %d tokens would do.",
            len(tokens), length + around, wanted + around, least, least * wanted,
        )  # fmt: skip
    windows = tokens[: len(tokens) // length * length].view(-1, length)
    before, after = (part.expand(len(windows), -1) for part in (before, after))
    windows = torch.cat([before, windows, after], 1)
    if spread:
        windows = windows[torch.randperm(len(windows), generator=torch.Generator().manual_seed(seed))]
    return as_batches(model, windows[: count * batch_size], batch_size)


def as_batches(model: PreTrainedModel, windows: torch.Tensor, batch_size: int) -> list[dict[str, torch.Tensor]]:
    """
    Make model inputs of windows of tokens.

    Args:
        model ([`~transformers.PreTrainedModel`]): The model that takes the inputs.
        windows (`torch.LongTensor` of shape `(windows, length)`): The tokens.
        batch_size (`int`): Windows in a batch.
    """
    batches = []
    for window in windows.split(batch_size):
        batch = {"input_ids": window}
        if model.config.is_encoder_decoder:
            batch["decoder_input_ids"] = window
        elif _is_causal_language_model(model):
            batch["labels"] = window
        batches.append(batch)
    return batches


def _text_tokenizer(processor: Any) -> Any:
    tokenizer = getattr(processor, "tokenizer", processor)
    if not hasattr(tokenizer, "encode"):
        raise ValueError(
            f"a text needs a tokenizer, and the checkpoint has only a {type(processor).__name__}: use random inputs."
        )
    return tokenizer


def check_batch(model: PreTrainedModel, batch: dict[str, torch.Tensor]) -> None:
    """Refuse a batch that a model cannot run on."""
    try:
        with torch.no_grad():
            model(**on_device(batch, model))
    except Exception as error:  # an unsuitable batch can fail in any way
        raise ValueError(
            f"{type(model).__name__} does not take {' and '.join(batch)} alone ({type(error).__name__}: {error})."
        ) from error


def _special_tokens(tokenizer: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The tokens that a tokenizer puts before and after a text, such as `[CLS]` and `[SEP]`."""
    whole, plain = (tokenizer("a", add_special_tokens=special)["input_ids"] for special in (True, False))
    starts = (i for i in range(len(whole)) if whole[i : i + len(plain)] == plain)
    start = next(starts, 0)
    return torch.tensor(whole[:start], dtype=torch.long), torch.tensor(whole[start + len(plain) :], dtype=torch.long)


def _is_causal_language_model(model: PreTrainedModel) -> bool:
    name = type(model).__name__
    return name.endswith(("ForCausalLM", "LMHeadModel")) and not getattr(model.config, "is_encoder_decoder", False)
