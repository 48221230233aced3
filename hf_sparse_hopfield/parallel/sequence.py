# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Ulysses sequence parallelism: each process has a part of the sequence, and within attention a part of the heads.

All-to-all exchanges before and after attention lead from one to the other, so attention sees the whole sequence, and
retrieval is the same as in one process. Alpha and beta go with the heads.
"""

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import gcd
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from transformers.masking_utils import sdpa_mask

from ..integration.sites import attention_sites, number_of_heads
from .active import activate, ran_in_parallel
from .context import PER_TOKEN, checked_model, whole_batch
from .heads import LocalHeads
from .processes import Processes


if TYPE_CHECKING:
    from ..integration.binding import LayerRetrieval


@contextmanager
def ulysses(model: nn.Module, batch: Mapping[str, Any], group: Any = None) -> Iterator[dict[str, Any]]:
    """
    Run a model on the part of a batch that belongs to this process, with a part of the heads inside of attention.

    The call is that of [`context_parallel`]: every process passes the same batch and gets its part of it, the losses and the
    gradients of the processes add up to those of the batch, and forward and backward pass belong inside the context. With
    `DistributedDataParallel` or FSDP, which average gradients, multiply the loss by the number of processes.

    Compared with [`context_parallel`], attention needs fewer messages and no code of its own, and observation (calibration,
    sparsity logging) works; but there cannot be more processes than heads, and each holds the scores of whole sequences.

    Args:
        model (`torch.nn.Module`):
            A sparse model of a family on transformers' attention registry, whose layers are all (sliding) attention. It may be
            wrapped for data parallelism.
        batch (`Mapping[str, Any]`):
            Arguments of the model, as for [`context_parallel`]. Models without rotary embeddings need `position_ids`.
        group (`torch.distributed.ProcessGroup` or `DeviceMesh` of one dimension, *optional*):
            The processes that share a sequence; all of them by default. Their number divides the number of heads and the
            length of the sequence. Key and value heads are repeated if there are too few.

    Yields:
        `dict[str, Any]`: The arguments of the model for this process.

    Example:

    ```python
    >>> import torch
    >>> import torch.distributed as dist
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> from hf_sparse_hopfield import to_sparse_hopfield
    >>> from hf_sparse_hopfield.parallel import ulysses

    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # torchrun starts more
    >>> sizes = dict(vocab_size=9, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2)
    >>> model = to_sparse_hopfield(LlamaForCausalLM(LlamaConfig(**sizes)))
    >>> tokens = torch.randint(9, (1, 12))
    >>> with ulysses(model, {"input_ids": tokens, "labels": tokens}) as part:
    ...     loss = model(**part).loss
    ...     loss.backward()
    >>> dist.destroy_process_group()

    ```
    """
    pretrained = checked_model(model, "ulysses")
    processes = Processes(group)
    for site in attention_sites(pretrained):
        heads = number_of_heads(site)
        if heads is not None and heads % processes.size:
            raise ValueError(
                f"{type(pretrained).__name__}, layer {site.name!r} has {heads} heads, which {processes.size} processes cannot "
                "share evenly. Choose a number of processes that divides them, or use context_parallel."
            )
    # RoBERTa and others count positions in their own way
    is_rotary = any("rotary" in type(module).__name__.lower() for module in pretrained.modules())
    if batch.get("position_ids") is None and not is_rotary:
        raise ValueError(
            f"ulysses needs position_ids of {type(pretrained).__name__}, which has no rotary embeddings: how it counts the "
            "tokens of a whole sequence is not known. For most models they are torch.arange(length)[None]."
        )
    whole = whole_batch(pretrained, batch, "ulysses")
    length = whole["position_ids"].shape[1]
    if length % processes.size:
        raise ValueError(
            f"The sequence has {length} tokens, which {processes.size} processes cannot share evenly. Pad it to a multiple of "
            f"{processes.size} and mask the padding in attention_mask."
        )
    # A whole attention_mask lets transformers make the mask of all keys, unless a cache tells it how many there are.
    if "use_cache" in inspect.signature(pretrained.forward).parameters:
        whole["use_cache"] = False
    split = [name for name in PER_TOKEN if name != "attention_mask" and name in whole]
    part = {name: whole[name].chunk(processes.size, 1)[processes.rank].contiguous() for name in split}
    with activate(Ulysses(processes)):
        yield {**whole, **part}


class Ulysses:
    """
    The attention of models whose tokens are spread over processes, in their order.

    Args:
        processes ([`Processes`]): The processes.
    """

    def __init__(self, processes: Processes) -> None:
        self.processes = processes

    def mask(self, **arguments: Any) -> Tensor | None:
        """The mask of the whole sequence."""
        return sdpa_mask(**{**arguments, "q_length": arguments["kv_length"]})

    def attend(
        self,
        module: nn.Module,
        retrieval: "LayerRetrieval | None",
        query: Tensor,
        key: Tensor,
        value: Tensor,
        **options: Any,
    ) -> Tensor:
        """The attention of one layer; a dense layer has no `retrieval`."""
        from ..integration.attention import attend_with  # imports `active.py`, and is imported while transformers is

        name = type(module).__name__
        options.pop("position_ids")
        refused = {**options.pop("unsupported"), "a position bias": options.pop("bias") is not None}
        used = [reason for reason, is_used in refused.items() if is_used]
        if used:
            raise ValueError(f"{name}: ulysses does not support {' or '.join(used)}.")
        all_heads, queries = query.shape[1:3]
        if key.shape[2] != queries or retrieval is not None and 1 < retrieval.num_heads != all_heads:
            raise ValueError(
                f"{name} has {queries} queries, {key.shape[2]} keys and {all_heads} heads here. ulysses needs whole sequences and "
                "all heads: neither caches nor cross-attention nor tensor parallelism are supported."
            )
        ran_in_parallel(module)
        heads = self._local_heads(all_heads)
        repeats = self.processes.size // gcd(self.processes.size, key.shape[1])
        if repeats > 1:
            key, value = (tensor.repeat_interleave(repeats, 1) for tensor in (key, value))
        query, key, value = (self._exchange(tensor) for tensor in (query, key, value))
        options["sinks"] = heads.take(options["sinks"])
        output = attend_with(heads, module, retrieval, query, key, value, **options)
        return self._exchange(output).transpose(1, 2)

    def _local_heads(self, all_heads: int) -> LocalHeads:
        heads = all_heads // self.processes.size
        start = self.processes.rank * heads
        return LocalHeads(start, start + heads, self.processes.group, sum_gradients=False)

    def _exchange(self, tensor: Tensor) -> Tensor:
        """Give each process its part along dimension 1, and join what they give along dimension 2."""
        return _AllToAll.apply(tensor, 1, 2, self.processes)


class _AllToAll(torch.autograd.Function):
    """Split along one dimension, send a part to each process, and join what they send along another dimension."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, split: int, join: int, processes: Processes) -> Tensor:
        ctx.split, ctx.join, ctx.processes = split, join, processes
        sent = torch.stack(tensor.chunk(processes.size, split))
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent, group=processes.group)
        return torch.cat(received.unbind(), join)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        return _AllToAll.apply(gradients[0], ctx.join, ctx.split, ctx.processes), None, None, None
