# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Continuous batching: the sequences of a step, each with its own keys out of transformers' paged cache.

transformers puts the new tokens of all requests into one row and says where each request starts (`cu_seq_lens_q`,
`cu_seq_lens_k`). Its sdpa scores every token against the keys of all requests and masks the others out. Here each sequence
meets its own keys only, so a step costs what its requests cost one by one: [`sequences_of`] takes the row apart, and
`attention.py` retrieves for each part.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel

from ..backends.places import at_places
from .sites import attention_sites
from .upstream import ATTENTION_NAME, attention_name


# Decoding requests with at most this many keys retrieve together, padded to the longest of them: a call of its own takes as
# long as this many keys.
SHORT = 256

# What transformers passes along with the cache, besides the lengths.
_PAGING = ("read_index", "write_index", "block_table", "max_length_k", "logits_indices", "logits_processor_args")

_running: ContextVar[bool] = ContextVar("continuous_batch", default=False)


def check_paged(model: PreTrainedModel) -> None:
    """
    Raise if continuous batching cannot run a sparse model as it is: transformers would exchange its attention.

    Args:
        model ([`~transformers.PreTrainedModel`]): A model with sparse attention in at least one part.
    """
    text = model.config.get_text_config()
    name, model_name = attention_name(text), type(model).__name__
    if name == "eager":
        raise ValueError(
            f"Continuous batching would exchange the attention of the whole model: the part of {model_name} that generates "
            "uses eager attention. Load it with attn_implementation={'': 'sparse_hopfield', 'text_config': 'sdpa'}."
        )
    if name != ATTENTION_NAME:
        return
    for site in attention_sites(model):
        if any(config is text for config in site.configs) and not site.kind.registry:
            raise ValueError(
                f"{model_name}, layer {site.name!r} ({type(site.module).__name__}) computes its attention itself and cannot "
                "read the paged cache of continuous batching. Use `generate`, or `transformers serve` without "
                "--continuous-batching."
            )


@contextmanager
def continuous_batch() -> Iterator[None]:
    """Marks the forward pass of a continuous batch, which needs no mask: the lengths tell the sequences apart."""
    token = _running.set(True)
    try:
        yield
    finally:
        _running.reset(token)


def in_continuous_batch() -> bool:
    """Whether the forward pass of a continuous batch runs in this thread."""
    return _running.get()


# torch.compile calls the function while it traces and keeps the answer: the step of a continuous batch is compiled apart from
# other calls, because it has arguments of its own.
in_continuous_batch._dynamo_marked_constant = True  # type: ignore[attr-defined]


@dataclass
class Sequences:
    """
    One or several sequences of a step that retrieve in one call.

    Args:
        rows (`slice` or `torch.Tensor`): Where their queries stand in the step.
        query (`torch.Tensor` of shape `(sequences, heads, queries, head_dim)`): Their queries.
        key, value (`torch.Tensor` of shape `(sequences, kv_heads, keys, head_dim)`):
            Their keys and values, cached and new; or the whole cache, `(1, kv_heads, rows, head_dim)`, with `places`.
        mask (`torch.Tensor`, *optional*): `True` where a key is one, and no padding.
        is_causal (`bool`): Whether the queries are the last ones of the keys, and see what came before them.
        sliding_window (`int`, *optional*): With `is_causal`, the number of keys that a query sees.
        places (`torch.Tensor` of shape `(sequences, keys)`, *optional*): Where in the cache their keys and values are.
    """

    rows: slice | torch.Tensor
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    mask: torch.Tensor | None = None
    is_causal: bool = False
    sliding_window: int | None = None
    places: torch.Tensor | None = None


@dataclass
class _Step:
    """The keys and values of all sequences of a step: one after the other, or at `places` of the cache."""

    key: torch.Tensor
    value: torch.Tensor
    places: torch.Tensor | None

    def of(self, keys: slice) -> dict[str, Any]:
        """Those of one sequence."""
        if self.places is None:
            return {"key": self.key[:, :, keys], "value": self.value[:, :, keys]}
        return {"key": self.key, "value": self.value, "places": self.places[None, keys]}

    def at(self, index: torch.Tensor) -> dict[str, Any]:
        """Those of several sequences, at an index of shape `(sequences, keys)`."""
        if self.places is None:
            return {"key": at_places(self.key, index), "value": at_places(self.value, index)}
        return {"key": self.key, "value": self.value, "places": self.places[index]}


def sequences_of(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cache: Any,
    starts_q: torch.Tensor,
    starts_k: dict[str, torch.Tensor],
    paging: dict[str, Any],
    in_place: bool,
) -> list[Sequences]:
    """
    Write the new keys and values of a step into the paged cache, and read those of each sequence.

    Args:
        module (`torch.nn.Module`): The attention module.
        query, key, value (`torch.Tensor` of shape `(1, heads, tokens, head_dim)`): The new tokens of all sequences.
        cache ([`~transformers.generation.continuous_batching.PagedAttentionCache`]): The cache.
        starts_q (`torch.Tensor` of shape `(sequences + 1,)`): Cumulative numbers of queries.
        starts_k (`dict[str, torch.Tensor]`): Cumulative numbers of keys, for each type of layer.
        paging (`dict`): What else the attention function got. Entries that belong to the cache are taken out.
        in_place (`bool`): Leave cached keys and values where they are, if the cache can show them.

    Returns:
        `list[Sequences]`: The sequences. Queries in none of them are padding.
    """
    where = {name: paging.pop(name, None) for name in _PAGING}
    _refuse_what_cannot_be(module, query, where)
    layer: Any = module.layer_idx
    allocator = cache.layer_to_allocator[layer]
    where["cu_seq_lens_k"] = starts_k
    step = _in_place(layer, allocator, key, value, where) if in_place else None
    if step is None:
        key, value = cache.update(key, value, layer, where)
        step = _Step(key, value, None)
    at_q, at_k = starts_q.tolist(), starts_k[allocator.layer_type].tolist()
    window = getattr(allocator, "sliding_window", None)
    short, parts = [], []
    for i in range(len(at_q) - 1):
        queries, keys = slice(at_q[i], at_q[i + 1]), slice(at_k[i], at_k[i + 1])
        count = queries.stop - queries.start
        if count == 1 and keys.stop - keys.start <= SHORT:
            short.append((queries.start, keys))
        elif count:
            part = Sequences(queries, query[:, :, queries], **step.of(keys))
            if count > 1:  # A single query comes last. It sees all the keys: the cache keeps no more than its window.
                part.is_causal, part.sliding_window = True, window
            parts.append(part)
    if short:
        parts.append(_together(query, step, short))
    return parts


def _in_place(
    layer: int, allocator: Any, key: torch.Tensor, value: torch.Tensor, where: dict[str, Any]
) -> _Step | None:
    """Write the new keys and values, and show the cache with the places of all sequences; `None` if it cannot be shown."""
    read, write = (where[name][allocator.index] for name in ("read_index", "write_index"))
    if read.numel() == 0:  # the new tokens are all there is
        return None
    try:
        pages = allocator.get_cache_for_block_table(layer)
    except NotImplementedError:  # a sliding window, which its new tokens overwrite
        return None
    new = (states.squeeze(0).transpose(0, 1) for states in (key, value))
    allocator.update(*new, layer, read[:0], write)  # with nothing to read, it only writes
    cached_key, cached_value = (page.flatten(0, 1).transpose(0, 1)[None] for page in pages)
    return _Step(cached_key, cached_value, read.long())


def _together(query: torch.Tensor, step: _Step, decoding: list[tuple[int, slice]]) -> Sequences:
    """Sequences with one query each as one batch, padded to the most keys."""
    if len(decoding) == 1:
        row, keys = decoding[0]
        return Sequences(slice(row, row + 1), query[:, :, row : row + 1], **step.of(keys))
    rows = torch.tensor([row for row, _ in decoding], device=query.device)
    first = torch.tensor([keys.start for _, keys in decoding], device=query.device)
    length = torch.tensor([keys.stop - keys.start for _, keys in decoding], device=query.device)
    offset = torch.arange(max(keys.stop - keys.start for _, keys in decoding), device=query.device)
    mask = offset < length[:, None]
    index = torch.where(mask, first[:, None] + offset, first[:, None])
    queries = query[0].transpose(0, 1)[rows].unsqueeze(2)
    return Sequences(rows, queries, mask=mask[:, None, None], **step.at(index))


def _refuse_what_cannot_be(module: torch.nn.Module, query: torch.Tensor, where: dict[str, Any]) -> None:
    if where["block_table"] is not None:
        raise ValueError(
            f"{type(module).__name__} got a block table, which only flash attention reads. Set "
            "`max_blocks_per_request=0` in the ContinuousBatchingConfig."
        )
    if query.is_cuda and torch.cuda.is_current_stream_capturing():
        raise ValueError(
            "sparse_hopfield reads the lengths of the sequences on the host, which a CUDA graph cannot record. Set "
            "`use_cuda_graph=False` in the ContinuousBatchingConfig."
        )
