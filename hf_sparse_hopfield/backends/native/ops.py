# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The compiled core as `torch.library` operators: eager mode, autograd, torch.compile and torch.export see one node.

The support of the rows (columns and weights) is kept for the backward pass in a buffer whose size follows from the
shapes alone, so that no operator has outputs of data-dependent size. Blocks of rows fill their share of it from the
front: pages that no row needs are never touched, and rows that do not fit are computed again.
"""

import torch
from torch import Tensor

from .library import BLOCK_ROWS, ROW_STATE, call


# Mean support of a block up to which it is kept; more is computed again, at the price of one matrix product.
_KEPT_PER_ROW = 64

_ARGUMENTS = (
    "Tensor query, Tensor key, Tensor value, Tensor? beta, Tensor? alpha, Tensor? mask, Tensor? bias, Tensor? sinks, "
    "Tensor? seed, float scaling, float beta_value, float alpha_value, bool is_causal, int sliding_window, float dropout"
)
_LIBRARY = torch.library.Library("hf_sparse_hopfield", "FRAGMENT")
_LIBRARY.define(f"native_forward({_ARGUMENTS}, bool keep) -> (Tensor, Tensor, Tensor)")
_LIBRARY.define(
    f"native_backward(Tensor gradient, Tensor states, Tensor support, {_ARGUMENTS}, bool[4] wanted) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)


def _kept_per_row(keys: int) -> int:
    return min(_KEPT_PER_ROW, keys)


def _forward_outputs(query: Tensor, key: Tensor, value: Tensor, keep: bool) -> tuple[Tensor, Tensor, Tensor]:
    batch, heads, queries, _ = query.shape
    # (batch, queries, heads, dim) in memory, as models want it next
    output = value.new_empty((batch, queries, heads, value.shape[3])).transpose(1, 2)
    blocks = batch * heads * ((queries + BLOCK_ROWS - 1) // BLOCK_ROWS) if keep else 0
    states = query.new_empty((batch * heads * queries if keep else 0, ROW_STATE), dtype=torch.int32)
    support = query.new_empty((blocks, BLOCK_ROWS * 2 * _kept_per_row(key.shape[2])), dtype=torch.int32)
    return output, states, support


def _backward_outputs(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, wanted: list[bool]):
    want_beta, want_alpha, want_bias, want_sinks = wanted
    rows = query.shape[0] * query.shape[1] * query.shape[2]
    beta_rows = query.new_empty(rows if want_beta else 0)
    alpha_rows = query.new_empty(rows if want_alpha else 0)
    sink_rows = query.new_empty(rows if want_sinks else 0)
    bias_gradient = bias.new_empty(bias.shape) if want_bias else query.new_empty(0)
    return *(torch.empty_like(t) for t in (query, key, value)), beta_rows, alpha_rows, bias_gradient, sink_rows


def _rows(tensor: Tensor) -> Tensor:
    """The same numbers with contiguous vectors."""
    return tensor if tensor.stride(-1) == 1 or tensor.shape[-1] <= 1 else tensor.contiguous()


def _shared(
    beta, alpha, mask, bias, sinks, seed, scaling, beta_value, alpha_value, is_causal, window, dropout
) -> dict:
    return {
        "beta": beta,
        "alpha": alpha,
        "mask": mask,
        "bias": bias,
        "sinks": None if sinks is None else sinks.contiguous(),
        "scaling": scaling,
        "beta_value": beta_value,
        "alpha_value": alpha_value,
        "is_causal": is_causal,
        "sliding_window": window,
        "dropout": dropout,
        "seed": 0 if seed is None else int(seed),
    }


def _forward(query: Tensor, key: Tensor, value: Tensor, *rest) -> tuple[Tensor, Tensor, Tensor]:
    keep = rest[-1]
    output, states, support = _forward_outputs(query, key, value, keep)
    if output.numel() == 0 or key.shape[2] == 0:
        states.zero_()
        return output.zero_(), states, support
    call(
        "hopfield_forward",
        _rows(query),
        _rows(key),
        _rows(value),
        **_shared(*rest[:-1]),
        output=output,
        states=states if keep else None,
        support=support if keep else None,
        support_per_row=_kept_per_row(key.shape[2]),
    )
    return output, states, support


def _backward(gradient: Tensor, states: Tensor, support: Tensor, query: Tensor, key: Tensor, value: Tensor, *rest):
    *settings, wanted = rest
    bias = settings[3]
    results = _backward_outputs(query, key, value, bias, wanted)
    if gradient.numel() == 0 or key.shape[2] == 0:
        return tuple(result.zero_() for result in results)
    for result in results[3:]:
        result.zero_()
    targets = [t if t.stride(-1) == 1 or t.shape[-1] <= 1 else t.new_empty(t.shape) for t in results[:3]]
    want_beta, want_alpha, want_bias, want_sinks = wanted
    call(
        "hopfield_backward",
        _rows(query),
        _rows(key),
        _rows(value),
        **_shared(*settings),
        states=states,
        support=support,
        support_per_row=_kept_per_row(key.shape[2]),
        output_gradient=_rows(gradient),
        query_gradient=targets[0],
        key_gradient=targets[1],
        value_gradient=targets[2],
        beta_gradient=results[3] if want_beta else None,
        alpha_gradient=results[4] if want_alpha else None,
        bias_gradient=results[5] if want_bias else None,
        sink_gradient=results[6] if want_sinks else None,
    )
    for result, target in zip(results, targets, strict=False):
        if result is not target:
            result.copy_(target)
    return results


def _forward_fake(query: Tensor, key: Tensor, value: Tensor, *rest) -> tuple[Tensor, Tensor, Tensor]:
    return _forward_outputs(query, key, value, rest[-1])


def _backward_fake(
    gradient: Tensor, states: Tensor, support: Tensor, query: Tensor, key: Tensor, value: Tensor, *rest
):
    return _backward_outputs(query, key, value, rest[3], rest[-1])


def _save(ctx, inputs: tuple, output: tuple[Tensor, Tensor, Tensor]) -> None:
    tensors, settings = inputs[:9], inputs[9:-1]
    ctx.save_for_backward(*tensors, *output[1:])
    ctx.settings = settings
    ctx.set_materialize_grads(False)


def _differentiate(ctx, gradient: Tensor | None, _states: None, _support: None) -> tuple:
    if gradient is None:
        return (None,) * 16
    *tensors, states, support = ctx.saved_tensors
    query, _, _, beta, alpha, *_ = tensors
    _, _, _, want_beta, want_alpha, _, want_bias, want_sinks, *_ = ctx.needs_input_grad
    wanted = [want_beta, want_alpha, want_bias, want_sinks]
    by_query, by_key, by_value, by_beta, by_alpha, by_bias, by_sink = torch.ops.hf_sparse_hopfield.native_backward(
        gradient, states, support, *tensors, *ctx.settings, wanted
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
        *(None,) * 8,
    )


_LIBRARY.impl("native_forward", _forward, "CPU")
_LIBRARY.impl("native_backward", _backward, "CPU")
torch.library.register_fake("hf_sparse_hopfield::native_forward", _forward_fake, lib=_LIBRARY)
torch.library.register_fake("hf_sparse_hopfield::native_backward", _backward_fake, lib=_LIBRARY)
torch.library.register_autograd(
    "hf_sparse_hopfield::native_forward", _differentiate, setup_context=_save, lib=_LIBRARY
)
