# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Registration of operators."""

from typing import Any

import pytest
import torch

from hf_sparse_hopfield.backends.operator_registration import register_operator


LIBRARY = torch.library.Library("hf_sparse_hopfield", "FRAGMENT")
LIBRARY.define("test_double(Tensor x) -> Tensor")
LIBRARY.define("test_half(Tensor x) -> Tensor")


def differentiate(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
    return 2 * gradient


register_operator(LIBRARY, "test_double", lambda x: 2 * x, lambda x: torch.empty_like(x), differentiate)
register_operator(LIBRARY, "test_half", lambda x: x / 2, lambda x: torch.empty_like(x))


def test_eager_and_traced():
    x = torch.randn(3, requires_grad=True)
    operator = torch.ops.hf_sparse_hopfield.test_double
    torch.testing.assert_close(operator(x), 2 * x)
    torch.testing.assert_close(torch.autograd.grad(operator(x).sum(), x)[0], torch.full_like(x, 2))
    assert operator(x.to("meta")).shape == (3,)
    torch.library.opcheck(operator.default, (x,))


def test_a_missing_derivative_is_an_error():
    x = torch.randn(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="test_half has no derivative.*backend='reference'"):
        torch.ops.hf_sparse_hopfield.test_half(x).sum().backward()
