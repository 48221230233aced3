# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The passes as `torch.library` operators: eager mode, autograd, torch.compile and torch.export see one node each."""

from typing import Any

import torch
from torch import Tensor

from ..operator_registration import register_operator
from .backward import backward_pass
from .forward import Kept, forward_pass
from .gradients import Wanted
from .settings import SCHEMA, Settings


_ARGUMENTS = f"Tensor query, Tensor key, Tensor value, {SCHEMA}"
_LIBRARY = torch.library.Library("hf_sparse_hopfield", "FRAGMENT")
_LIBRARY.define(f"blocked_forward({_ARGUMENTS}, bool keep) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)")
_LIBRARY.define(
    "blocked_backward(Tensor grad, Tensor rows, Tensor columns, Tensor weights, Tensor counts, Tensor solution, "
    f"bool[] needs, {_ARGUMENTS}) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)
# Places of the differentiable inputs among the arguments of the forward operator, in the order of `Wanted`.
_DIFFERENTIABLE = (0, 1, 2, *(3 + Settings._fields.index(name) for name in ("beta", "alpha", "bias", "sinks")))


def _forward(query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    *settings, keep = rest
    output, kept = forward_pass(query, key, value, Settings(*settings), keep)
    return output, *kept


def _forward_fake(query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    keep = rest[-1]
    size = torch.library.get_ctx().new_dynamic_size() if keep else 0
    compute = torch.promote_types(query.dtype, torch.float32)
    batch, heads, queries, _ = query.shape
    return (
        value.new_empty(batch, heads, queries, value.shape[3]),
        query.new_empty(size, dtype=torch.int32),
        query.new_empty(size, dtype=torch.int32),
        query.new_empty(size, dtype=compute),
        query.new_empty(batch, heads, queries, 1, dtype=torch.int32),
        query.new_empty(batch, heads, queries, 3 if keep else 0, dtype=compute),
    )


def _backward(grad: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    *kept, needs, query, key, value = rest[:9]
    return backward_pass(grad, Kept(*kept), Wanted(*needs), query, key, value, Settings(*rest[9:]))


def _backward_fake(grad: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    needs, *arguments = rest[5:]
    query = arguments[0]
    return tuple(
        arguments[place].new_empty(arguments[place].shape) if needed else query.new_empty(0)
        for place, needed in zip(_DIFFERENTIABLE, needs, strict=True)
    )


def _save(ctx: Any, inputs: tuple, output: tuple) -> None:
    *arguments, ctx.keep = inputs
    tensors = [argument if isinstance(argument, Tensor) else None for argument in arguments]
    ctx.save_for_backward(*output[1:], *tensors)
    ctx.numbers = [None if isinstance(argument, Tensor) else argument for argument in arguments]
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, grad: Tensor | None, *unused: Any) -> tuple[Tensor | None, ...]:
    grads: list[Tensor | None] = [None] * len(ctx.needs_input_grad)
    if grad is None:
        return tuple(grads)
    saved = ctx.saved_tensors  # gradient checkpointing allows this to be read only once
    kept, tensors = saved[:5], saved[5:]
    arguments = [number if tensor is None else tensor for tensor, number in zip(tensors, ctx.numbers, strict=True)]
    if not ctx.keep:  # recorded where no gradient was foreseen, such as by torch.export under no_grad
        kept = torch.ops.hf_sparse_hopfield.blocked_forward(*arguments, True)[1:]
    needs = [ctx.needs_input_grad[place] for place in _DIFFERENTIABLE]
    results = torch.ops.hf_sparse_hopfield.blocked_backward(grad, *kept, needs, *arguments)
    for place, needed, result in zip(_DIFFERENTIABLE, needs, results, strict=True):
        grads[place] = result if needed else None
    return tuple(grads)


register_operator(_LIBRARY, "blocked_forward", _forward, _forward_fake, _differentiate, _save)
register_operator(_LIBRARY, "blocked_backward", _backward, _backward_fake)
