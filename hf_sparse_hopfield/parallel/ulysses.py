# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Ulysses sequence parallelism: each process has a part of the sequence, and within attention a part of the heads.

All-to-all exchanges before and after attention lead from one to the other, so attention sees the whole sequence, and
retrieval is the same as in one process. Alpha and beta go with the heads.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import gcd
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from .heads import LocalHeads


# The attention modules and configurations of the models that are sequence parallel now, by their identity. Not a context
# variable: gradient checkpointing runs layers again in threads of autograd.
_ACTIVE: dict[int, "Exchange"] = {}

_SEQUENCES = ("input_ids", "inputs_embeds", "position_ids", "token_type_ids", "labels")
_KNOWN = {*_SEQUENCES, "attention_mask", "num_items_in_batch"}
_LAYER_TYPES = {"full_attention", "sliding_attention"}
_ONE_OUTPUT = ("SequenceClassification", "MultipleChoice", "QuestionAnswering", "NextSentence", "ForPreTraining")


@contextmanager
def ulysses(model: nn.Module, group: "dist.ProcessGroup | None" = None) -> Iterator[None]:
    """
    Within the context, the processes of a group share each sequence that they give to a model.

    Each process calls the model with the same whole batch, keeps its part of the sequence, and gets the outputs of that
    part: with 2 processes, the first half of the logits and the second. `loss` is the part of the loss that these tokens
    contribute; the parts add up to the loss of one process, and so do the gradients. Sum both over the group.

    Args:
        model (`torch.nn.Module`):
            A sparse decoder-only or encoder-only model of transformers; also wrapped by DDP or FSDP2.
        group (`torch.distributed.ProcessGroup`, *optional*, defaults to all processes):
            The processes that share a sequence. Their number divides the number of heads and the length of the sequence.
            Key and value heads are repeated if there are too few.

    Example:

    ```python
    >>> import torch
    >>> import torch.distributed as dist
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> from hf_sparse_hopfield.parallel import ulysses

    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # torchrun does this for several
    >>> config = LlamaConfig(hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, vocab_size=99)
    >>> model = LlamaForCausalLM._from_config(config, attn_implementation="sparse_hopfield")
    >>> with ulysses(model):
    ...     logits = model(input_ids=torch.arange(8)[None]).logits
    >>> logits.shape  # (batch, length // processes, vocabulary)
    torch.Size([1, 8, 99])
    >>> dist.destroy_process_group()

    ```
    """
    from ..integration.sites import attention_sites, configs_of, number_of_heads

    inner = _supported_model(model)
    exchange = Exchange(dist.group.WORLD if group is None else group)
    sites = attention_sites(inner)
    for site in sites:
        heads = number_of_heads(site)
        if not site.is_sparse or not site.kind.registry:
            raise ValueError(
                f"{type(inner).__name__}, layer {site.name!r}: ulysses needs an attention that transformers takes from its "
                "registry under the name sparse_hopfield, and this layer does not."
            )
        if heads is not None and heads % exchange.size:
            raise ValueError(
                f"{type(inner).__name__}, layer {site.name!r} has {heads} heads, which {exchange.size} processes cannot share "
                "evenly. Choose a number of processes that divides them."
            )
    owners = [*(site.module for site in sites), *configs_of(inner)]
    if any(id(owner) in _ACTIVE for owner in owners):
        raise RuntimeError(f"{type(inner).__name__} is already sequence parallel: ulysses does not nest.")
    hook = inner.register_forward_pre_hook(exchange.split_inputs, with_kwargs=True)
    _ACTIVE.update({id(owner): exchange for owner in owners})
    try:
        yield
    finally:
        hook.remove()
        for owner in owners:
            del _ACTIVE[id(owner)]


def active_exchange(owner: Any) -> "Exchange | None":
    """
    The exchange that an attention module takes part in; `None` outside of [`ulysses`].

    Args:
        owner (`torch.nn.Module` or [`~transformers.PreTrainedConfig`]): The attention module, or the configuration of a model.
    """
    return _ACTIVE.get(id(owner)) if _ACTIVE else None


@dataclass(frozen=True)
class Exchange:
    """
    What the processes of a group exchange around attention.

    Args:
        group (`torch.distributed.ProcessGroup`): The processes that share a sequence.
    """

    group: "dist.ProcessGroup"

    @property
    def size(self) -> int:
        """The number of processes."""
        return dist.get_world_size(self.group)

    @property
    def rank(self) -> int:
        """The number of this process."""
        return dist.get_rank(self.group)

    def split_inputs(
        self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """A forward pre-hook: keep the part of each sequence that belongs to this process."""
        signature = inspect.signature(model.forward)
        given = signature.bind(*args, **kwargs).arguments
        given |= given.pop("kwargs", {})
        given = {name: value for name, value in given.items() if value is not None}
        unknown = [name for name, value in given.items() if name not in _KNOWN and not isinstance(value, bool)]
        if unknown:
            raise ValueError(
                f"ulysses splits {', '.join(_SEQUENCES)} along the sequence and leaves a 2-D attention_mask whole; what to do "
                f"with {', '.join(sorted(unknown))} of {type(model).__name__} it does not know."
            )
        first = given.get("input_ids", given.get("inputs_embeds"))
        if first is None:
            raise ValueError(
                f"ulysses needs input_ids or inputs_embeds of {type(model).__name__}, got {sorted(given)}."
            )
        batch, length = first.shape[:2]
        if length % self.size:
            raise ValueError(
                f"The sequence has {length} tokens, which {self.size} processes cannot share evenly. Pad it to a multiple "
                f"of {self.size} and mask the padding in attention_mask."
            )
        given["position_ids"] = _positions(model, given, length, first.device)
        # Whole, so that transformers makes the mask of all keys; also where one process would need none, because without
        # one it takes positions that do not start at zero for packed sequences.
        given.setdefault("attention_mask", torch.ones(batch, length, dtype=torch.long, device=first.device))
        if given["attention_mask"].ndim != 2:
            raise ValueError(
                "ulysses needs an attention_mask of shape (batch, length), got "
                f"{tuple(given['attention_mask'].shape)}: transformers makes the mask of the heads from it."
            )
        if "labels" in given:
            given |= _shifted_labels(model, given)
        for name in (*_SEQUENCES, "shift_labels"):
            if name in given:
                dim = -1 if name == "position_ids" else 1  # some models have several positions per token, in front
                given[name] = given[name].chunk(self.size, dim)[self.rank].contiguous()
        if "use_cache" in signature.parameters:
            given["use_cache"] = False  # a cache would hold a part of the sequence
        return (), given

    def to_heads(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Give away the other heads of the own part of the sequence; get the other parts of the own heads."""
        repeats = self.size // gcd(self.size, key.shape[1])
        if repeats > 1:
            key, value = (tensor.repeat_interleave(repeats, 1) for tensor in (key, value))
        query, key, value = (_AllToAll.apply(tensor, 1, 2, self.group) for tensor in (query, key, value))
        return query, key, value

    def to_sequence(self, output: torch.Tensor) -> torch.Tensor:
        """The way back, for the output of attention `(batch, queries, heads, value_dim)`."""
        return _AllToAll.apply(output, 1, 2, self.group)

    def local_heads(self, heads: int) -> LocalHeads:
        """
        The heads that this process computes.

        Args:
            heads (`int`): Their number.
        """
        return LocalHeads(self.rank * heads, (self.rank + 1) * heads, self.group, sum_gradients=False)


class _AllToAll(torch.autograd.Function):
    """Split along one dimension, send a part to each process, and join what they send along another dimension."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, split: int, join: int, group: "dist.ProcessGroup") -> torch.Tensor:
        ctx.split, ctx.join, ctx.group = split, join, group
        sent = torch.stack(tensor.chunk(dist.get_world_size(group), split))
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent, group=group)
        return torch.cat(received.unbind(), join)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        return _AllToAll.apply(gradients[0], ctx.join, ctx.split, ctx.group), None, None, None


def _supported_model(model: nn.Module) -> nn.Module:
    """The model of transformers inside of a wrapped one, if its outputs can be split along the sequence."""
    from transformers import PreTrainedModel

    inner = next((module for module in model.modules() if isinstance(module, PreTrainedModel)), None)
    if inner is None:
        raise TypeError(f"ulysses needs a model of transformers, got {type(model).__name__}.")
    reason = None
    config = inner.config.get_text_config()
    layer_types = set(getattr(config, "layer_types", None) or ()) - _LAYER_TYPES
    if getattr(inner.config, "is_encoder_decoder", False):
        reason = "it has two sequences"
    elif "position_ids" not in inspect.signature(inner.forward).parameters:
        reason = "its forward takes no position_ids, so the parts of a sequence cannot be told apart"
    elif layer_types or any(isinstance(module, nn.Conv1d) for module in inner.modules()):
        reason = f"it has layers that carry a state along the sequence outside of attention {sorted(layer_types)}"
    elif any(word in type(inner).__name__ for word in _ONE_OUTPUT) or getattr(inner, "pooler", None) is not None:
        reason = "it makes one output of the whole sequence"
    if reason is not None:
        raise ValueError(f"ulysses cannot split the sequences of {type(inner).__name__}: {reason}.")
    return inner


def _positions(model: nn.Module, given: dict[str, Any], length: int, device: torch.device) -> torch.Tensor:
    positions = given.get("position_ids")
    if positions is None:
        # RoBERTa and others count positions in their own way
        if not any("rotary" in type(module).__name__.lower() for module in model.modules()):
            raise ValueError(
                f"ulysses needs position_ids of {type(model).__name__}: each process has a part of the sequence and cannot "
                "count. For most models they are torch.arange(length)[None]."
            )
        return torch.arange(length, device=device)[None]
    if "attention_mask" not in given and bool((positions.diff(dim=-1) != 1).any()):
        raise ValueError(
            "position_ids start again within the sequence, as in a row of packed sequences, which ulysses does not keep "
            "apart. Pass one sequence per row, or an attention_mask if they belong together."
        )
    return positions


def _shifted_labels(model: nn.Module, given: dict[str, Any]) -> dict[str, Any]:
    """Labels for a part of the sequence: its last token predicts the first of the next part."""
    if getattr(model, "loss_type", None) != "ForCausalLM":
        raise ValueError(
            f"ulysses splits the loss of causal language models only; call {type(model).__name__} without labels and compute "
            "the loss from its logits."
        )
    shifted = nn.functional.pad(given["labels"], (0, 1), value=-100)[..., 1:]
    return {"shift_labels": shifted, "num_items_in_batch": given.get("num_items_in_batch", (shifted != -100).sum())}
