# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The definition against loops over every row in numpy."""

import numpy as np
import torch
from hypothesis import given

from hf_sparse_hopfield import retrieve

from ..functional import oracle
from .cases import retrieve_arguments


def naive(query, key, value, *, scaling=None, beta=1.0, alpha=2.0, steps=1, tolerance=0.0, allowed=None, bias=None):
    """The definition with loops over every row in float64 numpy, and nothing shared with the package."""
    query, key, value = (np.asarray(t, dtype=np.float64) for t in (query, key, value))
    batch, heads, queries, dim = query.shape
    keys, group = key.shape[2], heads // key.shape[1]
    scaling = dim**-0.5 if scaling is None else scaling
    allowed = np.broadcast_to(True if allowed is None else allowed, (batch, heads, queries, keys))
    bias = np.broadcast_to(0.0 if bias is None else bias, (batch, heads, queries, keys))
    alpha, beta = (np.broadcast_to(x, (heads,)) for x in (alpha, beta))
    output = np.zeros((batch, heads, queries, value.shape[-1]))
    used = np.zeros((batch, heads, queries), dtype=int)
    for b, h, i in np.ndindex(batch, heads, queries):
        k, v, state = key[b, h // group], value[b, h // group], query[b, h, i]
        visible = allowed[b, h, i]

        def weights(state, k=k, b=b, h=h, i=i, visible=visible):
            scores = beta[h] * scaling * (k @ state) + bias[b, h, i]
            return oracle.entmax_row(np.where(visible, scores, -np.inf), alpha[h])

        for _ in range(steps - 1):
            used[b, h, i] += 1
            new = weights(state) @ k
            moved, state = np.linalg.norm(new - state), new
            if moved < tolerance:
                break
        used[b, h, i] += 1
        output[b, h, i] = weights(state) @ v
    return output, used


@given(retrieve_arguments())
def test_definition(problem):
    query, key, value, options = problem
    plain = dict(options)
    allowed = plain.pop("mask", torch.ones(1, 1, 1, 1, dtype=torch.bool)).numpy()
    if plain.pop("is_causal"):
        allowed = allowed & np.tri(query.shape[2], key.shape[2], key.shape[2] - query.shape[2], dtype=bool)
    expected, used = naive(query, key, value, allowed=allowed, **plain)
    result = retrieve(query, key, value, **options, return_trace=True, backend="reference")
    np.testing.assert_allclose(result.output, expected, atol=1e-9)
    np.testing.assert_array_equal(result.steps_used, used)


def test_what_lies_in_masked_places_does_not_matter():
    tensors = [torch.randn(2, heads, 5, 4) for heads in (4, 2, 2)]
    mask = torch.ones(2, 1, 5, 5, dtype=torch.bool)
    mask[0, ..., 3:] = False
    expected = [torch.zeros(2, 4, 5, 4), *torch.zeros(3, 2, 4, 5, 4)]
    for fill in (0.0, torch.nan, torch.inf):
        for tensor in tensors[1:]:
            tensor[0, :, 3:] = fill
        leaves = [tensor.clone().requires_grad_() for tensor in tensors]
        output = retrieve(*leaves, mask=mask, steps=2, backend="reference")
        results = [output, *torch.autograd.grad(output.square().sum(), leaves)]
        if fill == 0.0:
            expected = results
        for result, right in zip(results, expected, strict=True):
            assert torch.equal(result, right)
