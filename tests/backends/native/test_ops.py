# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The operators of the compiled core, as torch sees them."""

import torch
from torch.utils.checkpoint import checkpoint

from hf_sparse_hopfield.backends import native, select_backend
from hf_sparse_hopfield.backends.native.settings import SCHEMA, Settings

from .problems import in_both, needs_core, patterns, problem_of


pytestmark = needs_core


def test_the_schema_has_the_fields_of_the_settings():
    assert tuple(field.split()[1] for field in SCHEMA.split(", ")) == Settings._fields


def test_compile_without_graph_breaks():
    query, key, value = patterns(1, 4, 20, 24, 16, sharpness=3.0, requires_grad=True)
    alpha = torch.full((1, 4, 1, 1), 1.4, requires_grad=True)
    beta = torch.full((1, 4, 1, 1), 1.1, requires_grad=True)
    leaves = (query, key, value, alpha, beta)

    def work(query, key, value, alpha, beta):
        problem = problem_of(query, key[:, ::2], value[:, ::2], alpha=alpha, beta=beta, is_causal=True, steps=2)
        chosen, _ = select_backend(problem, "native")
        return chosen.run(problem).output.sin()

    eager = work(*leaves)
    compiled = torch.compile(work, fullgraph=True, backend="aot_eager")(*leaves)
    torch.testing.assert_close(compiled, eager)
    for got, right in zip(
        torch.autograd.grad(compiled.sum(), leaves), torch.autograd.grad(eager.sum(), leaves), strict=True
    ):
        torch.testing.assert_close(got, right, atol=1e-5, rtol=1e-4)


@in_both
def test_operators_keep_their_promises(dtype):
    query, key, value = patterns(1, 2, 6, 40, 8, sharpness=2.0, requires_grad=True, dtype=dtype)
    bias = torch.randn(1, 1, 6, 40, requires_grad=True, dtype=dtype)
    alpha = torch.full((1, 2, 1, 1), 1.4, requires_grad=True, dtype=dtype)
    call = Settings(None, alpha, None, bias, None, None, 0.35, 1.0, 0.0, True, 0, 0.0)
    arguments = (query, key, value, *call, True)
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(torch.ops.hf_sparse_hopfield.native_forward.default, arguments, test_utils=tests)


def test_checkpointing_and_accumulation():
    query, key, value = patterns(1, 2, 40, 50, 16, sharpness=2.0, requires_grad=True)

    def work(*tensors: torch.Tensor) -> torch.Tensor:
        return native.run(problem_of(*tensors, dropout=0.2)).output

    torch.manual_seed(1)
    plain = torch.autograd.grad(work(query, key, value).sum(), (query, key, value))
    torch.manual_seed(1)
    saved = torch.autograd.grad(checkpoint(work, query, key, value, use_reentrant=False).sum(), (query, key, value))
    for a, b in zip(plain, saved, strict=True):
        assert torch.equal(a, b)


def test_keeps_nothing_without_gradients():
    query, key, value = patterns(1, 1, 40, 50, 16)
    operator = torch.ops.hf_sparse_hopfield.native_forward
    call = Settings(*(None,) * 6, 0.25, 1.0, 2.0, False, 0, 0.0)
    _, states, support = operator(query, key, value, *call, False)
    assert states.numel() == 0 and support.numel() == 0
