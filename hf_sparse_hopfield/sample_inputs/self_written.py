# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Text that a causal language model writes itself: there is nothing to download, and it is of the model's own domain."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from tqdm.std import tqdm
from transformers import (
    GenerationConfig,
    GenerationMixin,
    LogitsProcessor,
    LogitsProcessorList,
    PreTrainedModel,
    StoppingCriteria,
    StoppingCriteriaList,
)

from ..model_running import evaluating
from ..progress import progress_bar


_AT_ONCE = 2**15  # tokens of the windows that are written together: their keys and values are in memory
# `_Sampled` leaves one token to choose. Without a token that ends a text, the next one begins after it.
_PLAIN = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0}
_MARK = "\x00"  # stands for the words of the user in a chat template


@torch.no_grad()
def self_written(
    model: PreTrainedModel,
    tokenizer: Any,
    *,
    windows: int,
    length: int,
    seed: int = 0,
    progress: bool = False,
) -> torch.Tensor:
    """
    Let a causal language model write windows of text, sampled from its own distribution.

    Windows begin in turn with the token that begins a text; with that and a word chosen at random, which makes the texts more
    varied; and, if there is a chat template, with what precedes the words of the user, so that the model writes a conversation.

    Args:
        model ([`~transformers.PreTrainedModel`]): A causal language model.
        tokenizer: Its tokenizer, or a processor that has one.
        windows (`int`): Number of windows.
        length (`int`): Tokens in a window.
        seed (`int`, *optional*, defaults to 0): Seed of the sampling.
        progress (`bool`, *optional*, defaults to `False`): Show progress.

    Returns:
        `torch.LongTensor` of shape `(windows, length)`.

    Example:

    ```python
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> from hf_sparse_hopfield.sample_inputs import self_written

    >>> sizes = {"hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 2, "vocab_size": 99}
    >>> model = LlamaForCausalLM(LlamaConfig(**sizes, num_hidden_layers=2))
    >>> self_written(model, None, windows=2, length=16).shape
    torch.Size([2, 16])

    ```
    """
    if not isinstance(model, GenerationMixin) or not model.can_generate() or model.config.is_encoder_decoder:
        raise ValueError(
            f"{type(model).__name__} writes no text: self-written text needs a causal language model. Give a text file."
        )
    writer: Any = model
    generator = torch.Generator().manual_seed(seed)
    starts = [starts for starts in _starts(model, tokenizer, windows, generator) if starts.shape[1] < length]
    written = torch.empty(windows, length, dtype=torch.long)
    devices = [] if model.device.type == "cpu" else [model.device]
    with (
        torch.random.fork_rng(devices),
        evaluating(model),
        _plain(model),
        progress_bar("writing text, in tokens", total=windows * length, enabled=progress) as bar,
    ):
        torch.manual_seed(seed)
        for kind, begun in enumerate(starts):
            places = torch.arange(kind, windows, len(starts))
            for part in places.split(max(1, _AT_ONCE // length)):
                start = begun[part].to(model.device)
                bar.update(start.numel())
                text: Any = writer.generate(
                    start,
                    attention_mask=torch.ones_like(start),
                    max_new_tokens=length - start.shape[1],
                    logits_processor=LogitsProcessorList([_Sampled()]),
                    stopping_criteria=StoppingCriteriaList([_Counted(bar)]),
                )
                written[part] = text.cpu()
    return written


class _Sampled(LogitsProcessor):
    """
    Draws a token from the model's distribution, and leaves no other. Where the cumulative probability passes a random number, there
    is the token: on a CPU, `do_sample=True` draws a random number for each entry of the vocabulary, which takes a third of the time.
    """

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        edges = scores.double().softmax(-1).cumsum(-1)
        drawn = torch.rand(len(edges), 1, dtype=edges.dtype, device=edges.device) * edges[:, -1:]
        token = torch.searchsorted(edges, drawn, right=True).clamp_max(edges.shape[-1] - 1)
        return torch.full_like(scores, -torch.inf).scatter_(1, token, 0.0)


class _Counted(StoppingCriteria):
    """Moves a bar with each token, and stops nothing."""

    def __init__(self, bar: tqdm) -> None:
        self.bar = bar

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        self.bar.update(len(input_ids))
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)


@contextmanager
def _plain(model: GenerationMixin) -> Iterator[None]:
    """Generate with `_PLAIN`, until the context ends. What an argument of `generate` leaves out comes from the model."""
    before = model.generation_config
    model.generation_config = GenerationConfig(**_PLAIN)
    try:
        yield
    finally:
        model.generation_config = before


def _starts(model: PreTrainedModel, tokenizer: Any, windows: int, generator: torch.Generator) -> list[torch.Tensor]:
    """The tokens that windows begin with: for each kind of text, as many rows as there are windows."""
    tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
    config = model.config.get_text_config()
    known = (getattr(tokenizer, "bos_token_id", None), config.bos_token_id, config.eos_token_id, 0)
    first = torch.tensor([[next(token for token in known if isinstance(token, int))]]).expand(windows, 1)
    special = set(getattr(tokenizer, "all_special_ids", first[0].tolist()))
    words = torch.tensor([token for token in range(config.vocab_size) if token not in special])
    word = words[torch.randint(len(words), (windows, 1), generator=generator)]
    starts = [first, torch.cat([first, word], 1)]
    if getattr(tokenizer, "chat_template", None):
        chat = tokenizer.apply_chat_template([{"role": "user", "content": _MARK}], tokenize=False)
        before, found, _ = chat.partition(_MARK)
        if found:
            starts.append(torch.tensor([tokenizer(before, add_special_tokens=False)["input_ids"]]).expand(windows, -1))
    return starts
