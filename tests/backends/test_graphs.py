# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Export, gradients and meta tensors: the operators of the backends under torch's transforms."""

import pytest
import torch

from hf_sparse_hopfield import retrieve
from hf_sparse_hopfield.backends import native


BACKENDS = [
    "blocked",
    pytest.param("native", marks=pytest.mark.skipif(native.library.missing is not None, reason="no compiled core")),
]


class Retrieval(torch.nn.Module):
    def __init__(self, backend):
        super().__init__()
        self.backend = backend

    def forward(self, query, key, value):
        return retrieve(query, key, value, alpha=1.5, is_causal=True, backend=self.backend)


def patterns(length, sharpness=3.0):
    return tuple(factor * torch.randn(1, 2, length, 16) for factor in (sharpness, 1.0, 1.0))


@pytest.mark.parametrize("sharpness", [1e-3, 20.0])
@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_of_what_was_exported_without_them(backend, sharpness):
    inputs = patterns(140, sharpness)
    with torch.no_grad():
        exported = torch.export.export(Retrieval(backend), inputs).module()
    leaves = [tensor.requires_grad_() for tensor in inputs]
    gradients = torch.autograd.grad(exported(*leaves).sum(), leaves)
    expected = torch.autograd.grad(Retrieval("reference")(*leaves).sum(), leaves)
    torch.testing.assert_close(gradients, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_exported_length_is_free(backend, strict):
    length = torch.export.Dim("length", min=2, max=4096)
    shapes = ({2: length},) * 3
    program = torch.export.export(Retrieval(backend), patterns(20), dynamic_shapes=shapes, strict=strict)
    assert any(f"{backend}_forward" in str(node.target) for node in program.graph.nodes)
    exported = program.module()
    for other in (3, 20, 90, 300):
        inputs = patterns(other)
        torch.testing.assert_close(exported(*inputs), Retrieval("reference")(*inputs), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("backend", BACKENDS)
def test_second_derivatives_are_refused(backend):
    leaves = [tensor.requires_grad_() for tensor in patterns(20)]
    gradients = torch.autograd.grad(Retrieval(backend)(*leaves).sum(), leaves, create_graph=True)
    with pytest.raises(RuntimeError, match="backend='reference'"):
        gradients[0].square().sum().backward()


@pytest.mark.parametrize("backend", ["auto", "blocked"])
def test_shapes_alone(backend):
    query, key, value = (tensor.to("meta") for tensor in patterns(20))
    assert retrieve(query, key, value, backend=backend).shape == query.shape


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
@pytest.mark.parametrize("sharpness", [1e-3, 3.0])
@pytest.mark.parametrize("queries", [1, 40])
@pytest.mark.parametrize("place", ["key", "value"])
@pytest.mark.parametrize("backend", ["reference", "auto", *BACKENDS])
def test_masked_keys_and_values_need_not_be_finite(backend, place, queries, sharpness, alpha):
    if backend == "native" and alpha == 1.0:
        pytest.skip("native does not serve alpha = 1: the dense backend does")
    query, key, value = patterns(200, sharpness)
    mask = (torch.arange(200) < 197).view(1, 1, 1, 200)
    results = []
    for number in (0.0, torch.nan):
        (key if place == "key" else value)[..., 197:, :] = number
        leaves = [tensor.clone().requires_grad_() for tensor in (query[:, :, :queries], key, value)]
        output = retrieve(*leaves, mask=mask, alpha=alpha, backend=backend)
        results.append((output, *torch.autograd.grad(output.sum(), leaves)))
    torch.testing.assert_close(results[1], results[0])
