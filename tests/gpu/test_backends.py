# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Every backend that serves a GPU, against `reference` in float64 on the CPU."""

import dataclasses

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings

from hf_sparse_hopfield import KeyScreen, explain_backend, retrieve
from hf_sparse_hopfield.backends import RetrievalProblem, reference
from hf_sparse_hopfield.backends.registry import BACKENDS

from ..backends.cases import Case, cases, check
from .comparing import assert_same


pytestmark = pytest.mark.gpu
BY_NAME = {backend.name: backend for backend in BACKENDS if backend.name != "native"}  # which is for CPUs
ALPHAS = {"dense": 1.0}
WIDE = Case(batch=2, kv_heads=2, groups=2, queries=150, keys=300, head_dim=64, value_dim=64, alpha=1.5, is_causal=True)
LARGE = {
    "64": WIDE,
    "128": dataclasses.replace(WIDE, head_dim=128, value_dim=128),
    "256": dataclasses.replace(WIDE, head_dim=256, value_dim=256),
    "padding": dataclasses.replace(WIDE, mask="padding"),
    "mask": dataclasses.replace(WIDE, mask="full", is_causal=False),
    "bias": dataclasses.replace(WIDE, bias="head"),
    "window": dataclasses.replace(WIDE, sliding_window=70),
    "segments": dataclasses.replace(WIDE, segments="batch"),
    "dense rows": dataclasses.replace(WIDE, sharpness=1e-3),
    "odd sizes": dataclasses.replace(WIDE, queries=131, keys=257, head_dim=80, value_dim=40, layout="transposed"),
    "settings of heads": dataclasses.replace(WIDE, alpha="head", beta="head"),
    "softcap and sinks": dataclasses.replace(WIDE, softcap=1.5, sinks=True),
}


def on(name, device):
    """The run of a backend on a device, for problems that are on the CPU; gradients come back there."""

    def move(value):
        if isinstance(value, tuple):
            return tuple(move(part) for part in value)
        return value.to(device) if isinstance(value, torch.Tensor) else value

    def run(problem):
        fields = {field.name: move(getattr(problem, field.name)) for field in dataclasses.fields(problem)}
        problem = RetrievalProblem(**fields)
        result = BY_NAME[name].run(problem)
        assert result.output.device.type == torch.device(device).type
        result.output = result.output.cpu()
        return result

    return run


def serves(name, device, case, dtype):
    problem, _ = case.problem(dtype, device=device)
    refusal = BY_NAME[name].refusal(problem)
    if refusal:
        pytest.skip(f"{name}: {refusal}")


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@given(case=cases(max_length=150, max_head_dim=70))
@settings(suppress_health_check=list(HealthCheck))
def test_equals_reference(name, dtype, device, case):
    if name in ALPHAS:
        case = dataclasses.replace(case, alpha=ALPHAS[name], softcap=None, sinks=False)
    serves(name, device, Case(alpha=ALPHAS.get(name, 2.0)), dtype)
    assume(BY_NAME[name].refusal(case.problem(dtype, device=device)[0]) is None)
    check(on(name, device), case, dtype)


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("case", LARGE)
def test_several_tiles(name, case, dtype, device):
    case = dataclasses.replace(LARGE[case], **({"alpha": ALPHAS[name]} if name in ALPHAS else {}))
    serves(name, device, case, dtype)
    check(on(name, device), case, dtype)


def test_long_rows(device):
    """More tiles than a 16-bit number of scores would hold, against the definition on some of the rows."""
    length = 20000 if device == "cuda" else 2000
    query, key, value = torch.randn(3, 1, 2, length, 64, generator=torch.Generator().manual_seed(0))
    output = retrieve(*(tensor.to(device) for tensor in (3 * query, key, value)), alpha=1.5, is_causal=True).cpu()
    rows = torch.tensor([0, 1, length // 2, length - 1])
    for row in rows.tolist():
        seen = slice(0, row + 1)
        problem = RetrievalProblem(
            3 * query[:, :, row : row + 1].double(), key[:, :, seen].double(), value[:, :, seen].double(), alpha=1.5
        )
        problem.scaling = 0.125
        assert_same(output[:, :, row : row + 1], reference.run(problem).output, f"row {row}", 1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("alpha", [1.5, 2.0])
@pytest.mark.parametrize("keys", [700, 9000])
def test_decode_with_a_screen(keys, alpha, dtype, device):
    generator = torch.Generator().manual_seed(0)
    query = 3 * torch.randn(2, 8, 1, 64, generator=generator)
    key, value = torch.randn(2, 2, 2, keys, 64, generator=generator)
    query, key, value = (tensor.to(dtype) for tensor in (query, key, value))
    expected = retrieve(query.double(), key.double(), value.double(), alpha=alpha, backend="reference")
    there = [tensor.to(device) for tensor in (query, key, value)]
    screen = KeyScreen(there[1][:, :, :500])
    screen.append(there[1][:, :, 500:])
    tolerance = 1e-4 if dtype == torch.float32 else 2e-2
    with torch.no_grad():
        for option in (screen, False):
            assert_same(retrieve(*there, alpha=alpha, screen=option), expected, str(option), tolerance)


def test_the_kernels_are_the_first_choice(device):
    tensors = torch.randn(3, 1, 2, 8, 16, device=device)
    expected = {"cuda": "triton", "cpu": explain_backend(*tensors.cpu()).partition(":")[0]}[device]
    assert explain_backend(*tensors).startswith(expected)
