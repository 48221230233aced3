# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The forward and backward passes against `reference` in float64."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_sparse_hopfield import retrieve
from hf_sparse_hopfield.backends import RetrievalProblem, reference, triton

from ..cases import Case, cases, check
from .conditions import DEVICE, needs_kernels


pytestmark = needs_kernels
TOLERANCE = {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 1e-2}


def run(problem):
    """`triton.run` on the device, for problems that are on the CPU."""
    if DEVICE == "cpu":
        return triton.run(problem)
    moved = {
        field.name: value.to(DEVICE) if isinstance(value := getattr(problem, field.name), torch.Tensor) else value
        for field in dataclasses.fields(problem)
    }
    result = triton.run(RetrievalProblem(**moved))
    result.output = result.output.cpu()
    return result


@given(case=cases(max_length=28, max_head_dim=20, tolerance=0.0))
@settings(max_examples=6)
def test_equals_reference(case):
    assert triton.refusal(case.problem(torch.float32)[0]) is None or DEVICE != "cpu"
    check(run, case, torch.float32, TOLERANCE[torch.float32])


@pytest.mark.slow
@given(case=cases(max_length=90, max_head_dim=40, alphas=(1.0, 1.001, 1.2, 1.5, 2.0)))
@settings(max_examples=100)  # about ten minutes under the interpreter
def test_equals_reference_thoroughly(case):
    # Rounding is relative to the scores, which are as large as `sharpness`, and the gradient of beta is a sum of them.
    check(run, case, torch.float32, TOLERANCE[torch.float32] * max(1.0, case.sharpness / 8))


# Each case of the issue by itself, in three dtypes, long enough for several tiles and for lists of candidates.
CASES = {
    "sparsemax": Case(queries=20, keys=70, head_dim=16, value_dim=16),
    "entmax15, causal": Case(queries=35, keys=35, alpha=1.5, is_causal=True),
    "any alpha": Case(queries=20, keys=40, alpha=1.3),
    "close to softmax": Case(queries=20, keys=40, alpha=1.001),
    "grouped heads": Case(kv_heads=2, groups=3, queries=9, keys=20, alpha=1.5),
    "alpha and beta of heads": Case(kv_heads=2, groups=2, queries=20, keys=33, alpha="head", beta="head"),
    "alpha and beta of rows": Case(kv_heads=2, queries=20, keys=33, alpha="row", beta="row", seed=3),
    "learned alpha of 1.07": Case(
        batch=2, groups=3, queries=1, alpha="scalar", beta="row", sharpness=0.3, bias="head", seed=1797
    ),
    "one learned alpha and beta": Case(batch=2, kv_heads=2, queries=20, keys=33, alpha="scalar", beta="scalar"),
    "causal with a cache": Case(queries=20, keys=70, is_causal=True, alpha=1.5),
    "more queries than keys": Case(queries=36, keys=20, is_causal=True, alpha=1.5),
    "window": Case(queries=35, keys=50, is_causal=True, sliding_window=11, alpha=1.5),
    "padding": Case(batch=2, queries=35, keys=35, mask="padding", is_causal=True),
    "mask": Case(batch=2, groups=2, queries=20, keys=40, mask="full", alpha=1.5),
    "mask of heads": Case(batch=2, groups=2, queries=20, keys=40, mask="head"),
    "rows that see nothing": Case(batch=2, queries=20, keys=40, mask="empty_rows", alpha=1.5),
    "bias": Case(batch=2, groups=2, queries=20, keys=40, bias="full", alpha=1.5),
    "bias of heads": Case(batch=2, groups=2, queries=20, keys=40, bias="head"),
    "bias of keys": Case(batch=2, groups=2, queries=20, keys=40, bias="key"),
    "bias of rows, sinks": Case(batch=2, groups=2, queries=20, keys=40, bias="row", sinks=True),
    "bias with holes": Case(batch=2, queries=20, keys=40, bias="holes", alpha=1.5),
    "softcap": Case(queries=20, keys=40, softcap=1.5, beta="head", alpha=1.5),
    "sinks": Case(groups=2, queries=20, keys=40, sinks=True, alpha="head"),
    "other width of values": Case(queries=20, keys=40, head_dim=24, value_dim=40, alpha=1.5),
    "wide heads": Case(queries=20, keys=40, head_dim=256, value_dim=256, alpha=1.5),
    "narrow heads": Case(queries=20, keys=40, head_dim=3, value_dim=1),
    "steps": Case(queries=20, keys=40, steps=3, alpha=1.5),
    "steps that stop": Case(queries=20, keys=40, steps=3, tolerance=0.5),
    "candidates": Case(queries=20, keys=140, sharpness=3.0, alpha=1.5),
    "candidates, sinks and softcap": Case(
        queries=20, keys=140, sharpness=8.0, sinks=True, softcap=20.0, layout="transposed"
    ),
    "flat": Case(queries=18, keys=60, sharpness=1e-3, alpha=1.5),
    "ties": Case(queries=20, keys=70, ties=True),
    "transposed": Case(batch=2, kv_heads=2, queries=20, keys=40, layout="transposed", alpha=1.5),
    "strided": Case(batch=2, kv_heads=2, queries=20, keys=40, layout="strided", alpha=1.5),
    "no keys": Case(queries=5, keys=0),
    "no queries": Case(queries=0, keys=5),
}


@pytest.mark.parametrize("name", CASES)
def test_each_option(name):
    check(run, CASES[name], torch.float32, TOLERANCE[torch.float32])


@pytest.mark.parametrize(
    "name",
    ["entmax15, causal", "alpha and beta of heads", "mask", "bias of keys", "sinks", "steps", "candidates", "flat"],
)
def test_float16(name):
    check(run, CASES[name], torch.float16, TOLERANCE[torch.float16])


@pytest.mark.parametrize("name", ["entmax15, causal", "steps"])  # the interpreter computes it in float32
def test_bfloat16(name):
    check(run, CASES[name], torch.bfloat16, TOLERANCE[torch.bfloat16])


def patterns(*shape, sharpness=2.0, requires_grad=True):
    query, key, value = (torch.randn(shape, device=DEVICE) for _ in range(3))
    return tuple(tensor.requires_grad_(requires_grad) for tensor in (query * sharpness, key, value))


@given(st.integers(0, 1000), st.sampled_from([1.5, 2.0, 1.25]), st.booleans())
@settings(max_examples=2)
def test_packed_sequences(seed, alpha, causal):
    torch.manual_seed(seed)
    query, key, value = patterns(2, 1, 34, 16)
    segments = torch.randint(0, 2, (2, 34), device=DEVICE).cumsum(1) // 7
    same = (segments[:, :, None] == segments[:, None, :])[:, None]
    options = {"alpha": alpha, "is_causal": causal}
    output = retrieve(query, key, value, segments=(segments, segments), backend="triton", **options)
    expected = retrieve(query, key, value, mask=same, backend="reference", **options)
    torch.testing.assert_close(output, expected, atol=1e-5, rtol=1e-5)
    upstream = torch.randn_like(output)
    torch.testing.assert_close(
        torch.autograd.grad(output, (query, key, value), upstream),
        torch.autograd.grad(expected, (query, key, value), upstream),
        atol=2e-5,
        rtol=1e-5,
    )


@pytest.mark.parametrize(("alpha", "keys"), [(1.5, 140), (torch.tensor([1.2, 1.9]), 40)])
def test_dropout(alpha, keys):
    query, key = (torch.randn(1, 2, n, 16, device=DEVICE, requires_grad=True) for n in (18, keys))
    value = torch.eye(keys, device=DEVICE)[None, None, :, :200].expand(1, 2, -1, -1).clone().requires_grad_()
    alpha = alpha if isinstance(alpha, float) else alpha.to(DEVICE).requires_grad_()
    leaves = (query, key, value, *((alpha,) if isinstance(alpha, torch.Tensor) else ()))

    def dropped(seed):
        torch.manual_seed(seed)
        return retrieve(query * 3, key, value, alpha=alpha, dropout=0.3, backend="triton")

    output, weights = dropped(1), retrieve(query * 3, key, value, alpha=alpha, backend="reference")
    assert torch.equal(output, dropped(1)) and not torch.equal(output, dropped(2))
    # the values are unit vectors: the output is the weights after dropout
    ratio = (output / weights)[weights > 1e-4]
    kept = ratio.round(decimals=3) != 0
    torch.testing.assert_close(ratio[kept], torch.full_like(ratio[kept], 1 / 0.7), atol=1e-3, rtol=1e-3)
    assert abs(kept.float().mean().item() - 0.7) < 0.1
    # with the same choice as a factor, autograd of the definition gives the gradients
    factor = torch.where((output > 0) | (weights == 0), 1 / 0.7, 0.0).detach()
    upstream = torch.randn_like(output)
    actual = torch.autograd.grad(output, leaves[:2], upstream, retain_graph=True)
    expected = torch.autograd.grad(weights * factor, leaves[:2], upstream)
    torch.testing.assert_close(actual, expected, atol=1e-3, rtol=1e-3)


def test_hidden_keys_may_be_anything():
    query, key, value = patterns(1, 2, 40, 16, requires_grad=False)
    hidden = torch.zeros(1, 1, 1, 40, dtype=torch.bool, device=DEVICE)
    hidden[..., 7] = hidden[..., 33] = True
    expected = retrieve(query, key, value, alpha=1.5, mask=~hidden, is_causal=True)
    for tensor in (key, value):
        tensor[:, :, 7], tensor[:, :, 33] = torch.nan, torch.inf
    leaves = tuple(tensor.clone().requires_grad_() for tensor in (query, key, value))
    output = retrieve(*leaves, alpha=1.5, mask=~hidden, is_causal=True, backend="triton")
    torch.testing.assert_close(output, expected, atol=1e-5, rtol=1e-5)
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(output.sum(), leaves))


def test_nan_does_not_vanish():
    query, key, value = patterns(1, 1, 40, 16, requires_grad=False)
    query[0, 0, 3, 0] = torch.nan
    leaves = tuple(tensor.clone().requires_grad_() for tensor in (query, key, value))
    output = retrieve(*leaves, alpha=1.5, backend="triton")
    assert output.isnan().any(-1).flatten().nonzero().flatten().tolist() == [3]
    assert torch.autograd.grad(output[0, 0, 3].sum(), leaves[0])[0][0, 0, 3].isnan().all()
    key[0, 0, 5] = torch.nan
    assert retrieve(query, key, value, alpha=1.5, backend="triton").isnan().all()


@pytest.mark.parametrize("queries", [1, 20])
def test_offsets_beyond_32_bits(queries):
    """Rows that lie 2^24 numbers apart: those of the last head are further away than 32 bits can say."""
    apart, heads, keys, width = 1 << 24, 4, 48, 16
    room = torch.empty(
        heads * keys * apart, dtype=torch.float16, device=DEVICE
    )  # only touched pages take memory on the CPU
    inputs = []
    for number, length in enumerate((queries, keys, keys)):
        place = (1, heads, length, width), (0, keys * apart, apart, 1), number * width
        inputs.append(room.as_strided(*place).copy_(torch.randn(1, heads, length, width)))
    output = retrieve(*inputs, alpha=1.5, is_causal=True, backend="triton")
    expected = retrieve(*(tensor.double() for tensor in inputs), alpha=1.5, is_causal=True, backend="reference")
    torch.testing.assert_close(output.double(), expected, atol=1e-3, rtol=1e-3)


def test_second_derivatives_raise():
    query, key, value = patterns(1, 1, 8, 16)
    (first,) = torch.autograd.grad(retrieve(query, key, value, backend="triton").sum(), query, create_graph=True)
    with pytest.raises(RuntimeError, match="backend='reference'"):
        first.sum().backward()


def test_the_same_every_time():
    leaves = patterns(1, 2, 40, 16)
    results = []
    for _ in range(2):
        output = retrieve(*leaves, alpha=1.5, backend="triton")
        results.append((output, *torch.autograd.grad(output.square().sum(), leaves)))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_compiled_and_exported():
    class Retrieval(torch.nn.Module):
        def forward(self, query, key, value):
            return retrieve(query, key, value, alpha=1.5, is_causal=True, backend="triton")

    inputs = patterns(1, 2, 20, 16)
    expected = reference.run(RetrievalProblem(*inputs, scaling=0.25, alpha=1.5, is_causal=True)).output
    module = Retrieval()
    for traced in (
        torch.compile(module, backend="aot_eager", fullgraph=True),
        torch.export.export(module, inputs).module(),
    ):
        output = traced(*inputs)
        torch.testing.assert_close(output, expected, atol=1e-5, rtol=1e-5)
        gradients = torch.autograd.grad(output.sum(), inputs)
        torch.testing.assert_close(
            gradients, torch.autograd.grad(expected.sum(), inputs, retain_graph=True), atol=2e-5, rtol=1e-5
        )


def test_operators_are_well_formed():
    inputs = patterns(1, 2, 20, 16)
    from hf_sparse_hopfield.backends.triton import _settings

    problem = RetrievalProblem(*inputs, scaling=0.25, alpha=1.5)
    arguments = (*inputs, *_settings(problem, inputs[0], 0.0), torch.float32, True)
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(torch.ops.hf_sparse_hopfield.triton_forward.default, arguments, test_utils=tests)
