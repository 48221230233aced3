# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The compiled core as `torch.library` operators: eager mode, autograd, torch.compile and torch.export see one node.

The support of the rows (columns and weights) is kept for the backward pass in a buffer whose size follows from the
shapes alone, so that no operator has outputs of data-dependent size. Blocks of rows fill their share of it from the
front: pages that no row needs are never touched, and rows that do not fit are computed again.
"""

from typing import Any

import torch
from torch import Tensor

from ..masks import without_unseen
from ..operator_registration import register_operator
from ..places import at_places
from .library import BLOCK_ROWS, ROW_STATE, WORDS, BackwardTensors, call_backward, call_forward, kept_per_row
from .settings import SCHEMA, Settings


_ARGUMENTS = f"Tensor query, Tensor key, Tensor value, {SCHEMA}"
_LIBRARY = torch.library.Library("hf_sparse_hopfield", "FRAGMENT")
_LIBRARY.define(f"native_forward({_ARGUMENTS}, bool keep) -> (Tensor, Tensor, Tensor)")
_LIBRARY.define(
    f"native_backward(Tensor gradient, Tensor states, Tensor support, {_ARGUMENTS}, bool[4] wanted) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)


def _output(query: Tensor, value: Tensor) -> Tensor:
    batch, heads, queries, _ = query.shape
    width = value.shape[3]
    # (batch, queries, heads, dim) in memory, the order that models use next
    strides = (queries * heads * width, width, heads * width, 1)
    return torch.empty_strided((batch, heads, queries, width), strides, dtype=query.dtype, device=value.device)


def _kept(query: Tensor, key: Tensor, keep: bool) -> tuple[Tensor, Tensor]:
    """States and support of the rows."""
    batch, heads, queries, _ = query.shape
    blocks = batch * heads * ((queries + BLOCK_ROWS - 1) // BLOCK_ROWS) if keep else 0
    words = WORDS[query.dtype]
    states = query.new_empty((batch * heads * queries if keep else 0, ROW_STATE), dtype=words)
    support = query.new_empty((blocks, BLOCK_ROWS * 2 * kept_per_row(key.shape[2])), dtype=words)
    return states, support


def _backward_outputs(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, wanted: list[bool]
) -> tuple[Tensor, ...]:
    """Gradients of query, key, value, beta, alpha, bias and sinks; those of beta, alpha and sinks for each row."""
    want_beta, want_alpha, want_bias, want_sinks = wanted
    rows = query.shape[0] * query.shape[1] * query.shape[2]
    beta_rows = query.new_empty(rows if want_beta else 0)
    alpha_rows = query.new_empty(rows if want_alpha else 0)
    sink_rows = query.new_empty(rows if want_sinks else 0)
    bias_gradient = query.new_empty(0) if bias is None or not want_bias else bias.new_empty(bias.shape)
    return *(torch.empty_like(t) for t in (query, key, value)), beta_rows, alpha_rows, bias_gradient, sink_rows


def _with_contiguous_vectors(tensor: Tensor) -> Tensor:
    return tensor if tensor.stride(-1) == 1 or tensor.shape[-1] <= 1 else tensor.contiguous()


def read_out(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    settings: Settings,
    states: Tensor | None = None,
    support: Tensor | None = None,
    places: Tensor | None = None,
    screen: tuple[int, ...] = (),
) -> Tensor:
    """
    The output of one step.

    Args:
        query, key, value (`torch.Tensor`): As in `RetrievalProblem`, with contiguous vectors.
        settings ([`Settings`]): The settings of the call.
        states, support (`torch.Tensor`, *optional*): Written to, if there may be a backward pass.
        places (`torch.LongTensor`, *optional*): As in `RetrievalProblem`; without a backward pass.
        screen (`tuple[int, ...]`, *optional*): As for [`~library.call_forward`].
    """
    output = _output(query, value)
    if output.numel() == 0 or (key.shape[2] if places is None else places.shape[1]) == 0:
        if states is not None:
            states.zero_()
        return output.zero_()
    call_forward(query, key, value, settings, output, states, support, places, screen)
    mask = settings.mask
    if mask is not None and not output.isfinite().all():  # a masked key or value may hold NaN or inf
        if places is not None:
            key, value = at_places(key, places), at_places(value, places)
        stored = without_unseen(key, mask), without_unseen(value, mask)
        call_forward(query, *stored, settings.without_screen(), output, states, support)
    return output


def _forward(query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    *settings, keep = rest
    states, support = _kept(query, key, keep)
    kept = (states, support) if keep else ()
    query, key, value = _with_contiguous_vectors(query), _with_contiguous_vectors(key), _with_contiguous_vectors(value)
    return read_out(query, key, value, Settings(*settings), *kept), states, support


def kept_columns(query: Tensor, key: Tensor, settings: Settings) -> tuple[Tensor, Tensor]:
    """
    The support of each row of one head.

    Args:
        query, key (`torch.Tensor`): As in `RetrievalProblem`, with contiguous vectors.
        settings ([`Settings`]): The settings of the call.

    Returns:
        `tuple[torch.LongTensor, torch.BoolTensor]`: The columns of each row, then -1; and which rows are not kept, because their
        support is too large.
    """
    states, support = _kept(query, key, True)
    # nothing is read out but one number of each key
    read_out(query, key, key[..., :1], settings, states, support)
    rows = torch.arange(len(states))
    count, offset = states[:, 2].long(), states[:, 3].long()
    missing = (count > 0) & (offset < 0)
    kept = count.clamp_min(0).masked_fill(missing, 0)
    place = torch.arange(int(kept.max()) if len(kept) else 0)
    numbers = support.flatten().view(torch.int32)  # columns have 32 bits, also among words of 64
    start = (rows // BLOCK_ROWS * support.shape[1] + offset) * (support.element_size() // 4)
    taken = (start[:, None] + place).clamp(0, max(0, numbers.numel() - 1))
    columns = numbers[taken].long() if numbers.numel() else taken
    return columns.masked_fill(place >= kept[:, None], -1), missing


def _backward(
    gradient: Tensor, states: Tensor, support: Tensor, query: Tensor, key: Tensor, value: Tensor, *rest: Any
) -> tuple[Tensor, ...]:
    settings, wanted = Settings(*rest[:-1]), rest[-1]
    results = _backward_outputs(query, key, value, settings.bias, wanted)
    if gradient.numel() == 0 or key.shape[2] == 0:
        return tuple(result.zero_() for result in results)
    for result in results[3:]:
        result.zero_()
    targets = [t if t.stride(-1) == 1 or t.shape[-1] <= 1 else t.new_empty(t.shape) for t in results[:3]]
    asked = (result if is_wanted else None for result, is_wanted in zip(results[3:], wanted, strict=True))
    tensors = BackwardTensors(states, support, _with_contiguous_vectors(gradient), *targets, *asked)
    query, key, value = _with_contiguous_vectors(query), _with_contiguous_vectors(key), _with_contiguous_vectors(value)
    call_backward(query, key, value, settings, tensors)
    mask = settings.mask
    if mask is not None and not targets[0].isfinite().all():  # as in the forward pass
        for result in results[3:]:
            result.zero_()
        call_backward(query, without_unseen(key, mask), without_unseen(value, mask), settings, tensors)
    for result, target in zip(results, targets, strict=False):
        if result is not target:
            result.copy_(target)
    return results


def _forward_fake(query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    return _output(query, value), *_kept(query, key, rest[-1])


def _backward_fake(
    gradient: Tensor, states: Tensor, support: Tensor, query: Tensor, key: Tensor, value: Tensor, *rest: Any
) -> tuple[Tensor, ...]:
    return _backward_outputs(query, key, value, Settings(*rest[:-1]).bias, rest[-1])


def _save(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor, Tensor]) -> None:
    settings, ctx.keep = Settings(*inputs[3:-1]).without_screen(), inputs[-1]  # the gradient needs the support only
    ctx.save_for_backward(*inputs[:3], *settings[:6], *output[1:])
    ctx.numbers = settings[6:]
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, gradient: Tensor | None, _states: None, _support: None) -> tuple[Tensor | None, ...]:
    if gradient is None:
        return (None,) * 21
    *tensors, states, support = ctx.saved_tensors
    if not ctx.keep:  # recorded where no gradient was foreseen, such as by torch.export under no_grad
        states, support = torch.ops.hf_sparse_hopfield.native_forward(*tensors, *ctx.numbers, True)[1:]
    query, _, _, beta, alpha, *_ = tensors
    _, _, _, want_beta, want_alpha, _, want_bias, want_sinks, *_ = ctx.needs_input_grad
    wanted = [want_beta, want_alpha, want_bias, want_sinks]
    by_query, by_key, by_value, by_beta, by_alpha, by_bias, by_sink = torch.ops.hf_sparse_hopfield.native_backward(
        gradient, states, support, *tensors, *ctx.numbers, wanted
    )
    batch, heads, queries, _ = query.shape
    rows = (batch, heads, queries, 1)
    return (
        by_query,
        by_key,
        by_value,
        (by_beta.view(rows) / beta).sum_to_size(beta.shape) if want_beta else None,
        by_alpha.view(rows).sum_to_size(alpha.shape) if want_alpha else None,
        None,
        by_bias if want_bias else None,
        by_sink.view(batch, heads, queries).sum((0, 2)) if want_sinks else None,
        *(None,) * 13,
    )


register_operator(_LIBRARY, "native_forward", _forward, _forward_fake, _differentiate, _save, "CPU")
register_operator(_LIBRARY, "native_backward", _backward, _backward_fake, device="CPU")
