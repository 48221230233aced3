# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The CUDA backend: its refusals, and its results under Triton's interpreter where that is installed."""

import dataclasses
import importlib.util
import os
import subprocess
import sys

import pytest
import torch

from hf_sparse_hopfield.backends import adasplash

from .cases import Case, check


INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
INSTALLED = all(importlib.util.find_spec(name) for name in ("adasplash", "triton"))
needs_kernels = pytest.mark.skipif(
    not INSTALLED, reason="the packages adasplash and triton are not both installed (they need CUDA or an interpreter)"
)


def problem(**options):
    built, _ = Case(queries=16, keys=16, head_dim=16, value_dim=16, alpha=1.5).problem(torch.float32)
    return dataclasses.replace(built, **options)


def test_refuses_other_devices(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert "needs CUDA" in adasplash.refusal(problem())


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"alpha": 1.0}, "alpha"),
        ({"alpha": torch.full((1, 1, 1, 1), 1.5)}, "alpha"),
        ({"mask": torch.ones(1, 1, 1, 16, dtype=torch.bool)}, "mask"),
        ({"bias": torch.zeros(1, 1, 1, 16)}, "bias"),
        ({"softcap": 1.0}, "softcap"),
        ({"sinks": torch.zeros(1)}, "sinks"),
        ({"is_causal": True, "sliding_window": 3}, "sliding_window"),
        ({"dropout": 0.1}, "dropout"),
        ({"return_weights": True}, "weights"),
        ({"key": torch.zeros(1, 1, 8, 16)}, "as many queries as keys"),
        ({"query": torch.zeros(1, 1, 16, 16, dtype=torch.float64)}, "float64"),
        ({"query": torch.zeros(1, 1, 16, 512)}, "256"),
    ],
)
def test_says_what_it_cannot_do(options, reason, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(adasplash, "_missing", lambda: None)
    assert reason in adasplash.refusal(problem(**options))


def test_names_the_missing_package(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(adasplash, "_missing", lambda: "adasplash")
    assert "adasplash is not installed" in adasplash.refusal(problem())


@needs_kernels
@pytest.mark.skipif(INTERPRETED, reason="this is the inner run")
def test_under_the_interpreter():
    """Triton reads TRITON_INTERPRET when it is imported: a process of its own."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    result = subprocess.run(command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


@needs_kernels
@pytest.mark.skipif(not INTERPRETED, reason="run by test_under_the_interpreter, or on a GPU")
@pytest.mark.parametrize(
    "case",
    [
        Case(queries=64, keys=64, head_dim=16, value_dim=16, alpha=1.5),
        Case(queries=128, keys=128, head_dim=16, value_dim=16, alpha=2.0, is_causal=True),
        Case(queries=40, keys=40, head_dim=16, value_dim=16, alpha=4 / 3, is_causal=True, groups=2, batch=2),
        Case(queries=21, keys=21, head_dim=20, value_dim=9, alpha=1.5, beta=0.7),
        Case(queries=32, keys=32, head_dim=16, value_dim=16, alpha=2.0, steps=2, tolerance=0.5),
    ],
)
def test_equals_reference(case):
    assert adasplash.refusal(case.problem(torch.float32)[0]) is None
    check(adasplash.run, case, tolerance=1e-3)


@needs_kernels
@pytest.mark.skipif(not INTERPRETED, reason="run by test_under_the_interpreter, or on a GPU")
def test_gradient_without_query():
    built, leaves = Case(queries=16, keys=16, head_dim=16, value_dim=16, alpha=1.5).problem(torch.float32)
    built = dataclasses.replace(built, query=built.query.detach())
    (gradient,) = torch.autograd.grad(adasplash.run(built).output.sum(), leaves["value"])
    assert gradient.abs().sum() > 0
