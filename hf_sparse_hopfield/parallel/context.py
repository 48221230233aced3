# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Context parallelism: each process has a part of the sequence, and its queries attend to the keys of all.

[`retrieve_context_parallel`] is the call for tensors. [`context_parallel`] runs a model of transformers on its part of a batch.
[`in_torch_context`] serves models inside torch's own `context_parallel`, which accelerate and the Trainer enter for
`ParallelismConfig(cp_size=...)`. The computation is in `sharded_keys.py`.
"""

import functools
import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.loss.loss_utils import ForCausalLMLoss
from transformers.masking_utils import causal_mask_function

from ..backends.lengths import length_factor
from ..backends.masks import canonical_mask
from ..backends.problem import RetrievalProblem
from ..integration.binding import LayerRetrieval, has_bound_attention
from ..integration.sites import attention_sites, shortened
from ..integration.upstream import ATTENTION_NAME, attention_name, mask_pattern
from ..observation import has_compiled_parts, look_at
from ..retrieval import canonical
from .active import activate, ran_in_parallel
from .processes import Processes
from .sharded_keys import retrieve_sharded


IGNORED_LABEL = -100  # as in the losses of transformers
# Inputs with one entry per token, which are split along their second dimension.
PER_TOKEN = (
    "input_ids",
    "inputs_embeds",
    "attention_mask",
    "position_ids",
    "token_type_ids",
    "labels",
    "shift_labels",
)
_ATTENTION_TYPES = ("full_attention", "sliding_attention")
_ONE_OUTPUT = ("SequenceClassification", "MultipleChoice", "QuestionAnswering", "NextSentence", "ForPreTraining")


# ---- Tensors ----


def retrieve_context_parallel(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    group: Any = None,
    positions: Tensor | None = None,
    scaling: float | None = None,
    beta: float | Tensor = 1.0,
    alpha: float | Tensor = 2.0,
    steps: int = 1,
    tolerance: float = 0.0,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    is_causal: bool = False,
    sliding_window: int | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """
    [`retrieve`] with queries, keys and values spread over processes: each passes its part and gets the output for its
    queries, which attend to the keys of all processes. The result is exact, and so are the gradients.

    All processes of the group must call it, and `backward`, in the same order. The gradients of `query`, `key` and `value` are
    those of the parts of this process. Those of `alpha`, `beta` and `sinks`, which all processes share, are the share of this
    process's queries: their sum over the processes is the gradient, as with the weights of a model.

    Args:
        query (`torch.Tensor` of shape `(batch, heads, queries, head_dim)`):
            The queries of this process. Numbers of queries and keys may differ between processes, or be 0.
        key (`torch.Tensor` of shape `(batch, kv_heads, keys, head_dim)`): The keys of this process.
        value (`torch.Tensor` of shape `(batch, kv_heads, keys, value_dim)`): The values of this process.
        group (`torch.distributed.ProcessGroup` or `DeviceMesh` of one dimension, *optional*):
            The processes; all of them by default.
        positions (`torch.LongTensor` of shape `(queries,)`, *optional*):
            For `is_causal`, the position in the sequence of each token of this process, which has as many queries as keys.
            Without them, the parts follow each other in the order of the processes.
        scaling, beta, alpha, steps, tolerance, is_causal, sliding_window, softcap, sinks: As for [`retrieve`].
        mask, bias (`torch.Tensor` broadcastable to `(batch, heads, all queries, keys)`, *optional*):
            As for [`retrieve`]: for the queries of all processes, those of the first process first, and the keys of this one.

    Returns:
        `torch.Tensor` of shape `(batch, heads, queries, value_dim)`.

    Example:

    ```python
    >>> import torch
    >>> import torch.distributed as dist
    >>> from hf_sparse_hopfield.parallel import retrieve_context_parallel

    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # torchrun starts more
    >>> query, key, value = torch.randn(3, 1, 2, 8, 16)
    >>> retrieve_context_parallel(query, key, value, alpha=1.5, is_causal=True).shape
    torch.Size([1, 2, 8, 16])
    >>> dist.destroy_process_group()

    ```
    """
    return _retrieve(
        Processes(group),
        RetrievalProblem(
            query,
            key,
            value,
            scaling,  # type: ignore[arg-type]  # `canonical` fills in the default
            beta,
            alpha,
            steps,
            tolerance,
            mask,
            bias,
            is_causal,
            sliding_window,
            softcap,
            sinks,
        ),
        positions,
    )


def _retrieve(processes: Processes, problem: RetrievalProblem, positions: Tensor | None) -> Tensor:
    """Check a problem and compute it. Its mask and bias have all queries, which `canonical` does not know of."""
    (mask, problem.mask), (bias, problem.bias) = (problem.mask, None), (problem.bias, None)
    canonical(problem)
    queries, keys = problem.query.shape[2], problem.key.shape[2]
    if positions is not None and (queries != keys or positions.shape != (queries,) or positions.dtype != torch.int64):
        raise ValueError(
            f"positions must be a LongTensor with one position for each of the {queries} queries and {keys} keys of this "
            f"process, which must be equally many; got {positions.dtype} of shape {tuple(positions.shape)}."
        )
    everyone = sum(count for (count,) in processes.gather([queries], problem.query.device))
    problem.mask, problem.bias = canonical_mask(mask, bias, (*problem.query.shape[:2], everyone, keys))
    return retrieve_sharded(problem, processes, positions)


# ---- Models ----


def sharded_positions(length: int, size: int, balanced: bool = True) -> list[Tensor]:
    """
    The positions of a sequence that each process gets.

    Args:
        length (`int`): Length of the sequence.
        size (`int`): Number of processes.
        balanced (`bool`, *optional*, defaults to `True`):
            Give each process one part from the front and one from the back. Under a causal mask, keys at the front are seen by
            more queries than those at the back, and parts in one piece would leave most processes waiting for the first.

    Example:

    ```python
    >>> from hf_sparse_hopfield.parallel.context import sharded_positions

    >>> sharded_positions(8, 2)
    [tensor([0, 1, 6, 7]), tensor([2, 3, 4, 5])]

    ```
    """
    positions = torch.arange(length)
    if balanced:
        parts = positions.tensor_split(2 * size)
        return [torch.cat([parts[rank], parts[-1 - rank]]) for rank in range(size)]
    pieces = positions.chunk(size)
    return [*pieces, *(positions[:0] for _ in range(size - len(pieces)))]


@contextmanager
def context_parallel(model: nn.Module, batch: Mapping[str, Any], group: Any = None) -> Iterator[dict[str, Any]]:
    """
    Run a model on the part of a batch that belongs to this process, while its attention sees the whole sequence.

    Every process passes the same batch and gets its part of it: the tokens with their positions, and for language models the
    labels, shifted before they are split. The loss that the model computes from them is the share of this process: the sum
    over the processes is the loss of the batch, and the sum of the gradients of the weights is their gradient. With
    `DistributedDataParallel` or FSDP, which average gradients, multiply the loss by the number of processes.

    Forward and backward pass, and all processes of the group, must be inside the context.

    Args:
        model (`torch.nn.Module`):
            A sparse model of a family on transformers' attention registry, whose layers are all (sliding) attention. It may be
            wrapped for data parallelism.
        batch (`Mapping[str, Any]`):
            Arguments of the model, the same in all processes: `input_ids` or `inputs_embeds`, and optionally
            `attention_mask` (two-dimensional), `position_ids`, `token_type_ids`, `labels`. What has no dimensions is passed on.
        group (`torch.distributed.ProcessGroup` or `DeviceMesh` of one dimension, *optional*):
            The processes; all of them by default.

    Yields:
        `dict[str, Any]`: The arguments of the model for this process.

    Example:

    ```python
    >>> import torch
    >>> import torch.distributed as dist
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> from hf_sparse_hopfield import to_sparse_hopfield
    >>> from hf_sparse_hopfield.parallel import context_parallel

    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # torchrun starts more
    >>> sizes = dict(vocab_size=9, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2)
    >>> model = to_sparse_hopfield(LlamaForCausalLM(LlamaConfig(**sizes)))
    >>> tokens = torch.randint(9, (1, 12))
    >>> with context_parallel(model, {"input_ids": tokens, "labels": tokens}) as part:
    ...     loss = model(**part).loss
    ...     loss.backward()
    >>> dist.destroy_process_group()

    ```
    """
    pretrained = checked_model(model, "context_parallel")
    processes = Processes(group)
    whole = whole_batch(pretrained, batch, "context_parallel")
    own = sharded_positions(whole["position_ids"].shape[1], processes.size)[processes.rank]
    own = own.to(whole["position_ids"].device)
    part = {name: value.index_select(1, own) if name in PER_TOKEN else value for name, value in whole.items()}
    with activate(ContextParallel(processes)):
        yield part


def checked_model(model: nn.Module, caller: str) -> PreTrainedModel:
    """
    The model of transformers inside of its wrappers. Raise if a part of it would see only the tokens of this process.

    Args:
        model (`torch.nn.Module`): The model.
        caller (`str`): Name of the function that splits sequences, for errors.
    """
    pretrained = next((module for module in model.modules() if isinstance(module, PreTrainedModel)), None)
    if pretrained is None:
        raise TypeError(f"{caller} needs a model of transformers, got {type(model).__name__}.")
    name = f"{type(pretrained).__name__} cannot run with {caller}:"
    if not has_bound_attention(pretrained):
        raise ValueError(f"{name} it has no layer that retrieves sparsely. Convert it with to_sparse_hopfield.")
    if has_compiled_parts(model):
        raise ValueError(f"{name} it is compiled. Pass the model that is not compiled.")
    if getattr(pretrained.config, "is_encoder_decoder", False):
        raise ValueError(f"{name} it is an encoder-decoder. Only models with one sequence are supported.")
    sites = attention_sites(pretrained)
    own = [site.name for site in sites if not site.kind.registry]
    if own:
        raise ValueError(
            f"{name} {shortened(own)} compute their weights themselves, from the keys of this process alone."
        )
    others = [site.name for site in sites if attention_name(site.configs[0]) != ATTENTION_NAME]
    if others:
        raise ValueError(f"{name} {shortened(others)} use another attention implementation than {ATTENTION_NAME!r}.")
    types = set(getattr(pretrained.config.get_text_config(), "layer_types", None) or ()) - set(_ATTENTION_TYPES)
    if types:
        raise ValueError(f"{name} its layers of type {sorted(types)} need more of the sequence than attention brings.")
    mixing = [
        path for path, module in pretrained.named_modules() if isinstance(module, (nn.Conv1d, nn.Conv2d, nn.RNNBase))
    ]
    if mixing:
        raise ValueError(f"{name} {shortened(mixing)} mix neighbouring tokens, some of which other processes have.")
    if "position_ids" not in inspect.signature(pretrained.forward).parameters:
        raise ValueError(
            f"{name} its forward takes no position_ids, so it cannot know which part of a sequence it has."
        )
    if (
        any(word in type(pretrained).__name__ for word in _ONE_OUTPUT)
        or getattr(pretrained, "pooler", None) is not None
    ):
        raise ValueError(f"{name} it makes one output of the whole sequence.")
    return pretrained


def whole_batch(model: PreTrainedModel, batch: Mapping[str, Any], caller: str) -> dict[str, Any]:
    """
    The arguments of the model for all processes: checked, with positions, a mask and shifted labels.

    Args:
        model ([`~transformers.PreTrainedModel`]): The model.
        batch (`Mapping[str, Any]`): Arguments of the model.
        caller (`str`): Name of the function that splits sequences, for errors.
    """
    tokens = next((batch[name] for name in ("input_ids", "inputs_embeds") if batch.get(name) is not None), None)
    if not isinstance(tokens, Tensor):
        raise ValueError(f"batch must have input_ids or inputs_embeds, got {sorted(batch)}.")
    count, length = tokens.shape[:2]
    whole = {name: value for name, value in batch.items() if value is not None}
    split = [name for name, value in whole.items() if isinstance(value, Tensor) and value.ndim]
    for name in split:
        shape = whole[name].shape
        if name not in PER_TOKEN or shape[1:2] != (length,) or len(shape) != (3 if name == "inputs_embeds" else 2):
            raise ValueError(
                f"{name} of shape {tuple(shape)} cannot be split along a sequence of length {length}; {caller} splits "
                f"{', '.join(PER_TOKEN)}, with one entry per token."
            )
    if "position_ids" not in whole:
        whole["position_ids"] = torch.arange(length, device=tokens.device)[None].expand(count, -1)
    elif "attention_mask" not in whole and bool((whole["position_ids"].diff(dim=-1) != 1).any()):
        raise ValueError(
            f"position_ids start anew within a row, as those of packed sequences do. {caller} does not support packed "
            "sequences; pass one sequence per row, padded, with its attention_mask."
        )
    # Without a mask, transformers takes the jump between the two parts of a process for the border of packed sequences.
    whole.setdefault("attention_mask", torch.ones(count, length, dtype=torch.bool, device=tokens.device))
    if "labels" in whole or "shift_labels" in whole:
        _shift_labels(model, whole)
    return whole


def _shift_labels(model: PreTrainedModel, whole: dict[str, Any]) -> None:
    """Shift the labels, and count those that enter the loss: a process sees neither the next token nor the others' labels."""
    parameters = inspect.signature(model.forward).parameters.values()
    passes_on = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    routed = getattr(model.config.get_text_config(), "output_router_logits", False)
    if model.loss_function is not ForCausalLMLoss or not passes_on or routed:
        reason = (
            "adds a loss of its experts' routing"
            if routed
            else "does not compute transformers' loss of causal language models"
        )
        raise ValueError(
            f"{type(model).__name__} {reason}, so that its loss on a part of the sequence is no share of the whole. Leave out "
            "labels and compute the loss from the logits."
        )
    if "shift_labels" not in whole:
        labels = whole["labels"]
        whole["shift_labels"] = torch.cat([labels[:, 1:], torch.full_like(labels[:, :1], IGNORED_LABEL)], 1)
    whole.setdefault("labels", whole["shift_labels"])  # a model without labels computes no loss
    whole.setdefault("num_items_in_batch", (whole["shift_labels"] != IGNORED_LABEL).sum())


# ---- Attention ----


class ContextParallel:
    """
    The attention of models whose tokens are spread over processes, by [`sharded_positions`].

    Args:
        processes ([`Processes`]): The processes.
        balanced (`bool`, *optional*, defaults to `True`): As for [`sharded_positions`].
        check_positions (`bool`, *optional*, defaults to `False`):
            Whether others have split the sequence: position_ids must then be those of its tokens, and masks must not get lost.
    """

    def __init__(self, processes: Processes, balanced: bool = True, check_positions: bool = False) -> None:
        self.processes, self.balanced, self.check_positions = processes, balanced, check_positions
        self.needs_mask = False  # whether causality does not say all that the last mask says
        self.needs_positions = False  # whether tokens may be packed sequences

    def positions(self, length: int, device: torch.device | str) -> list[Tensor]:
        """The positions of the tokens of each process, if this one has `length` tokens."""
        counts = [count for (count,) in self.processes.gather([length], torch.device(device))]
        positions = [part.to(device) for part in sharded_positions(sum(counts), self.processes.size, self.balanced)]
        if counts != [part.numel() for part in positions]:
            raise ValueError(
                f"the processes of a context parallel group have {counts} tokens; a sequence of {sum(counts)} is split into "
                f"{[part.numel() for part in positions]}. Split it with context_parallel."
            )
        return positions

    @torch.compiler.disable
    def mask(
        self,
        *,
        batch_size: int,
        q_length: int,
        kv_length: int,
        q_offset: Any = 0,
        kv_offset: Any = 0,
        mask_function: Any = causal_mask_function,
        attention_mask: Tensor | None = None,
        allow_is_causal_skip: bool = True,
        allow_is_bidirectional_skip: bool = False,
        use_vmap: bool = False,
        device: torch.device | str = "cpu",
        **kwargs: Any,
    ) -> Tensor | None:
        """
        The mask of all queries and the keys of this process, `(batch, 1, all queries, keys)`; `None` where causality says it
        all. The arguments are those of `sdpa_mask`.
        """
        if kv_length != q_length or bool(q_offset) or bool(kv_offset):
            raise ValueError(
                f"context parallelism needs whole sequences, but a cache brings {kv_length} keys for {q_length} queries. "
                "Generation is not supported; for a whole sequence, pass use_cache=False."
            )
        held = _tensors_of(mask_function)
        pattern = mask_pattern(mask_function) if held and self.check_positions else None
        self.needs_positions = pattern is not None and pattern.window is None
        if self.needs_positions:
            # Seen from here, the jump between the two parts of a process may be what looks packed. `attend` finds out.
            mask_function, held, allow_is_causal_skip = causal_mask_function, [], True
        if held or use_vmap:
            raise ValueError(
                "context parallelism does not support this mask: it depends on the tokens themselves (packed sequences, blocks "
                "of image tokens, chunks), of which a process has only a part."
            )
        padded = attention_mask is not None and not bool(attention_mask.all())
        positions = self.positions(q_length, device)
        own = positions[self.processes.rank]
        plain = allow_is_causal_skip and mask_function is causal_mask_function
        self.needs_mask = attention_mask is not None and self._hides_seen_keys(attention_mask, own)
        if not padded and (plain or allow_is_bidirectional_skip):
            return None
        batch, head = torch.arange(batch_size, device=device), torch.zeros(1, dtype=torch.int64, device=device)
        every = torch.cat(positions)
        visible = mask_function(
            batch[:, None, None, None], head[None, :, None, None], every[:, None], own[None, :]
        ).expand(batch_size, 1, every.numel(), own.numel())
        return visible if attention_mask is None else visible & attention_mask[:, None, None, :].bool()

    def _hides_seen_keys(self, attention_mask: Tensor, own: Tensor) -> bool:
        """Whether padding precedes a token, in any process. Tokens do not see the padding that follows them."""
        kept = attention_mask.bool()
        last_token = torch.where(kept, own, -1).amax(1) if own.numel() else own.new_full((kept.shape[0],), -1)
        padding = torch.where(kept, torch.iinfo(torch.int64).max, own)
        first = padding.amin(1) if own.numel() else torch.full_like(last_token, torch.iinfo(torch.int64).max)
        last_token, first = self.processes.largest(torch.stack([last_token, -first]))
        return bool((last_token > -first).any())

    @torch.compiler.disable
    def attend(
        self,
        module: nn.Module,
        retrieval: LayerRetrieval | None,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        mask: Tensor | None,
        bias: Tensor | None,
        is_causal: bool,
        sliding_window: int | None,
        scaling: float | Tensor | None,
        dropout: float,
        softcap: float | None,
        sinks: Tensor | None,
        position_ids: Tensor | None,
        unsupported: Mapping[str, bool],
    ) -> Tensor:
        """The attention of one layer; a dense layer has no `retrieval`. `unsupported` maps names to whether they are used."""
        name = type(module).__name__
        queries = query.shape[2]
        look = None if retrieval is None else look_at(retrieval)
        refused = {
            "dropout": bool(dropout),
            "observation (calibration, sparsity logging)": look is not None,
            **unsupported,
        }
        if any(refused.values()):
            used = [reason for reason, is_used in refused.items() if is_used]
            raise ValueError(f"{name}: context parallelism does not support {' or '.join(used)}.")
        if key.shape[2] != queries:
            raise ValueError(
                f"{name} has {queries} queries and {key.shape[2]} keys. Context parallelism needs whole sequences: neither "
                "caches nor cross-attention are supported."
            )
        positions = self.positions(queries, query.device)
        self._check(name, module, mask, position_ids, positions)
        beta: float | Tensor
        beta, alpha, steps, tolerance = 1.0, 1.0, 1, 0.0
        if retrieval is not None:
            beta, alpha = retrieval(torch.promote_types(query.dtype, torch.float32))
            factor = self._length_factor(name, retrieval, positions, mask, is_causal, sliding_window)
            if isinstance(factor, Tensor):
                beta = (beta.view(1, -1, 1, 1) if isinstance(beta, Tensor) else beta) * factor
            steps, tolerance = retrieval.steps, retrieval.tolerance
        if isinstance(scaling, Tensor):
            beta, scaling = beta * scaling, 1.0
        ran_in_parallel(module)
        is_causal = is_causal and mask is None  # a mask contains causality
        return _retrieve(
            self.processes,
            RetrievalProblem(
                query,
                key.to(query.dtype),
                value.to(query.dtype),
                scaling,  # type: ignore[arg-type]  # `canonical` fills in the default
                beta,
                alpha,
                steps,
                tolerance,
                mask,
                bias,
                is_causal,
                sliding_window if is_causal else None,
                softcap,
                sinks,
            ),
            positions[self.processes.rank],
        )

    def _length_factor(
        self,
        name: str,
        retrieval: LayerRetrieval,
        positions: list[Tensor],
        mask: Tensor | None,
        is_causal: bool,
        sliding_window: int | None,
    ) -> Tensor | None:
        """What the number of visible keys does to beta, if anything. Without a mask, it follows from the positions."""
        power = retrieval.length_power
        if not isinstance(power, Tensor):
            if power == 0.0:
                return None
            power = torch.tensor([power], device=positions[0].device)
        if mask is not None:
            raise ValueError(
                f"{name} has length_power, which context parallelism supports without masks only: leave out the attention_mask, "
                "or set length_power=0."
            )
        keys = sum(part.numel() for part in positions)
        counts: int | Tensor = keys
        if is_causal:
            counts = (positions[self.processes.rank] + 1).clamp_max(sliding_window or keys).view(1, 1, -1, 1)
        return cast(Tensor, length_factor(counts, power.view(1, -1, 1, 1)))

    def _check(
        self, name: str, module: nn.Module, mask: Tensor | None, position_ids: Tensor | None, positions: list[Tensor]
    ) -> None:
        """Raise if the mask is not one of ours, or if others have split the sequence in a way we do not know."""
        total, own = sum(part.numel() for part in positions), positions[self.processes.rank]
        rows = None if mask is None else mask.shape[-2]
        if rows is not None and rows != total and not (rows == 1 and own.numel() != 1):
            raise ValueError(
                f"{name} got a mask of {rows} queries and {mask.shape[-1]} keys. Under context parallelism, a mask must have all "  # type: ignore[union-attr]
                f"{total} queries and the keys of this process: pass a two-dimensional attention_mask to the model."
            )
        if not self.check_positions:
            return
        if mask is None and self.needs_mask:
            raise ValueError(
                f"{name}: padding precedes tokens, but accelerate's context parallelism drops attention masks. Pad on the right."
            )
        if position_ids is None:
            if self.needs_positions:
                raise ValueError(
                    f"{name} does not pass position_ids to its attention, so packed sequences would not be noticed under "
                    "context parallelism. Pass an attention_mask to the model."
                )
        elif getattr(module, "layer_idx", 0) in (0, None):
            differ = self.processes.gather([int(not bool((position_ids == own).all()))], own.device)
            if any(is_other for (is_other,) in differ):  # in all processes: none must wait for one that has raised
                raise ValueError(
                    f"{name}: the position_ids of process {self.processes.rank} begin with {position_ids[0, :8].tolist()}, and "
                    f"its tokens have the positions {own[:8].tolist()}; in processes {[r for r, (x,) in enumerate(differ) if x]} "
                    "they differ. Under torch's context_parallel, position_ids must count the tokens of the whole sequence "
                    "(packed sequences are not supported) and be among the buffers."
                )


def _tensors_of(mask_function: Any) -> list[Tensor]:
    """The tensors that a mask function of transformers holds, in the functions it is made of."""
    return [value for value in _closure(mask_function) if isinstance(value, Tensor)]


def _closure(function: Any) -> Iterator[Any]:
    for cell in getattr(function, "__closure__", None) or ():
        contents = cell.cell_contents
        for value in contents if isinstance(contents, tuple) else (contents,):
            yield value
            yield from _closure(value)


@functools.lru_cache(maxsize=1)
def in_torch_context(patched: Any, mesh: Any, balanced: bool) -> ContextParallel:
    """
    The attention inside torch's `context_parallel`.

    Args:
        patched (`Callable`): What torch has put in place of SDPA; another one for each context.
        mesh (`DeviceMesh`): The processes.
        balanced (`bool`): Whether torch gave each process a part from the front and one from the back.
    """
    return ContextParallel(Processes(mesh), balanced, check_positions=True)
