# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`PolynomialMemory`."""

import pytest
import torch

from hf_sparse_hopfield import PolynomialMemory


@pytest.mark.parametrize(("order", "steps"), [(2, 1), (10, 1), (10, 3)])
def test_polynomial_equals_formula(order, steps):
    patterns, queries = torch.randn(7, 5, dtype=torch.float64), torch.randn(3, 2, 5, dtype=torch.float64)
    memory = PolynomialMemory(patterns, order=order)
    expected = queries
    for _ in range(steps):
        powers = torch.stack([(expected * pattern).sum(-1) ** order for pattern in patterns], -1)
        expected = torch.einsum("...m,md->...d", powers / powers.sum(-1, keepdim=True), patterns)
    torch.testing.assert_close(memory.retrieve(queries, steps=steps), expected)
    torch.testing.assert_close(memory(queries, steps), expected)
    # no temperature: a multiple of the query, of either sign, gives the same, and nothing overflows
    torch.testing.assert_close(memory.retrieve(-1e100 * queries, steps=steps), expected)


def test_polynomial_completes_damaged_patterns():
    patterns = torch.randn(50, 128, generator=torch.Generator().manual_seed(0)).sign()
    damaged = patterns.clone()
    damaged[:, 64:] = 0.0
    memory = PolynomialMemory(patterns)
    torch.testing.assert_close(memory.retrieve(damaged, steps=2), patterns, rtol=0, atol=1e-3)
    longer = patterns * torch.linspace(1, 3, 50)[:, None]
    torch.testing.assert_close(
        PolynomialMemory(longer, normalize=True).retrieve(damaged),
        PolynomialMemory(patterns / 128**0.5).retrieve(damaged),
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_polynomial_with_nothing_to_go_by_is_zero(dtype):
    memory = PolynomialMemory(torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]).to(dtype))
    found = memory.retrieve(torch.tensor([[0.0, 0.0, 1.0], [100.0, 1.0, 0.0]]).to(dtype), steps=2)
    assert found.dtype == dtype
    assert torch.equal(found, torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]).to(dtype))


def test_polynomial_is_filled_and_loaded():
    memory = PolynomialMemory(torch.empty(0, 3))
    with pytest.raises(ValueError, match="empty"):
        memory.retrieve(torch.randn(3))
    assert memory.add(torch.randn(4, 3)) == range(0, 4)
    memory.remove(1)
    other = PolynomialMemory(torch.empty(0, 3))
    other.load_state_dict(memory.state_dict())
    assert torch.equal(other.patterns, memory.patterns) and len(other) == 3
    assert "3 patterns, dimension=3, order=10" in repr(other)


def test_polynomial_refuses_bad_arguments():
    patterns = torch.randn(4, 3)
    for order in (3, 0, -2, 2.0, True, "10"):
        with pytest.raises(ValueError, match=f"order must be an even integer of at least 2.*got {order!r}"):
            PolynomialMemory(patterns, order=order)
    with pytest.raises(TypeError, match="normalize"):
        PolynomialMemory(patterns, normalize="yes")
    with pytest.raises(TypeError, match="int64"):
        PolynomialMemory(patterns.long())
    with pytest.raises(ValueError, match="finite"):
        PolynomialMemory(patterns / 0)
    memory = PolynomialMemory(patterns)
    for steps in (0, 1.0, True):
        with pytest.raises(ValueError, match=f"steps must be an integer of at least 1, got {steps!r}"):
            memory.retrieve(patterns, steps=steps)
    with pytest.raises(TypeError, match="dtype"):
        memory.retrieve(patterns.double())
    with pytest.raises(ValueError, match="shape"):
        memory.retrieve(torch.randn(2, 4))
