# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The passes as `torch.library` operators with outputs of fixed size: for autograd, torch.compile, torch.export and CUDA graphs."""

from typing import Any

import torch
from torch import Tensor

from ..blocked.gradients import Wanted
from ..operator_registration import register_operator
from . import decode, launch
from .launch import Kept
from .settings import SCHEMA, Settings


_ARGUMENTS = f"Tensor query, Tensor key, Tensor value, {SCHEMA}"
_KEPT = ", ".join(f"Tensor {name}" for name in Kept._fields)
_LIBRARY = torch.library.Library("hf_sparse_hopfield", "FRAGMENT")
_LIBRARY.define(
    f"triton_forward({_ARGUMENTS}, ScalarType dtype, bool keep) -> (Tensor, {', '.join(['Tensor'] * len(Kept._fields))})"
)
_LIBRARY.define(f"triton_backward(Tensor grad, {_KEPT}, bool[] needs, {_ARGUMENTS}) -> ({', '.join(['Tensor'] * 7)})")
_LIBRARY.define(
    "triton_decode(Tensor query, Tensor key, Tensor value, Tensor? codes, Tensor? scales, Tensor? bounds, int first, "
    f"{SCHEMA}, ScalarType dtype) -> Tensor"
)
_LIBRARY.define(
    "triton_append_keys(Tensor key, Tensor(a!) codes, Tensor(b!) scales, Tensor(c!) bounds, int first) -> ()"
)
_DIFFERENTIABLE = (0, 1, 2, *(3 + Settings._fields.index(name) for name in ("beta", "alpha", "bias", "sinks")))


def _forward(query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    *settings, dtype, keep = rest
    output, kept = launch.forward(query, key, value, Settings(*settings), dtype, keep)
    return output, *kept


def _forward_fake(query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    *settings, dtype, keep = rest
    shapes = launch.kept_shapes(query, key, launch.tile_of(query, value, Settings(*settings)), keep)
    kept = [query.new_empty(shape, dtype=kind) for shape, kind in shapes.values()]
    return query.new_empty((*query.shape[:3], value.shape[3]), dtype=dtype), *kept


def _backward(grad: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    count = len(Kept._fields)
    kept, needs, query, key, value = Kept(*rest[:count]), rest[count], *rest[count + 1 : count + 4]
    settings = Settings(*rest[count + 4 :])
    results = launch.backward(grad, kept, Wanted(*needs), query, key, value, settings)
    return tuple(query.new_empty(0) if result is None else result for result in results)


def _backward_fake(grad: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    needs, *arguments = rest[len(Kept._fields) :]
    query = arguments[0]
    return tuple(
        arguments[place].new_empty(arguments[place].shape) if needed else query.new_empty(0)
        for place, needed in zip(_DIFFERENTIABLE, needs, strict=True)
    )


def _save(ctx: Any, inputs: tuple, output: tuple) -> None:
    *arguments, ctx.dtype, ctx.keep = inputs
    tensors = [argument if isinstance(argument, Tensor) else None for argument in arguments]
    ctx.save_for_backward(*output[1:], *tensors)
    ctx.numbers = [None if isinstance(argument, Tensor) else argument for argument in arguments]
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, grad: Tensor | None, *unused: Any) -> tuple[Tensor | None, ...]:
    grads: list[Tensor | None] = [None] * len(ctx.needs_input_grad)
    if grad is None:
        return tuple(grads)
    saved = ctx.saved_tensors  # gradient checkpointing allows this to be read only once
    count = len(Kept._fields)
    kept, tensors = saved[:count], saved[count:]
    arguments = [number if tensor is None else tensor for tensor, number in zip(tensors, ctx.numbers, strict=True)]
    if not ctx.keep:  # recorded where no gradient was foreseen, such as by torch.export under no_grad
        kept = torch.ops.hf_sparse_hopfield.triton_forward(*arguments, ctx.dtype, True)[1:]
    needs = [ctx.needs_input_grad[place] for place in _DIFFERENTIABLE]
    results = torch.ops.hf_sparse_hopfield.triton_backward(grad, *kept, needs, *arguments)
    for place, needed, result in zip(_DIFFERENTIABLE, needs, results, strict=True):
        grads[place] = result if needed else None
    return tuple(grads)


def _decode(query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> Tensor:
    codes, *_ = screen = rest[:4]
    *settings, dtype = rest[4:]
    return decode.read_out(
        query, key, value, Settings(*settings), dtype, None if codes is None else decode.Screen(*screen)
    )


def _decode_fake(query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> Tensor:
    return query.new_empty((*query.shape[:3], value.shape[3]), dtype=rest[-1])


def _append_keys(key: Tensor, codes: Tensor, scales: Tensor, bounds: Tensor, first: int) -> None:
    decode.append_keys(key, codes, scales, bounds, first)


_LIBRARY.impl("triton_append_keys", _append_keys, "CompositeExplicitAutograd")
torch.library.register_fake("hf_sparse_hopfield::triton_append_keys", lambda *arguments: None, lib=_LIBRARY)
register_operator(_LIBRARY, "triton_decode", _decode, _decode_fake)
register_operator(_LIBRARY, "triton_forward", _forward, _forward_fake, _differentiate, _save)
register_operator(_LIBRARY, "triton_backward", _backward, _backward_fake)
