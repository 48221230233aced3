# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Kernel launches: at most four forward, four backward and four in decode, whatever the options; one for a token's keys."""

import pytest
import torch

from hf_sparse_hopfield import KeyScreen, retrieve
from hf_sparse_hopfield.backends.triton import decode, launch

from .conditions import DEVICE, needs_kernels


pytestmark = needs_kernels


@pytest.fixture
def launched(monkeypatch):
    """The names of the kernels in the order of their launches."""
    names = []

    def run_kernel(kernel, grid, tile, arguments):
        names.append(getattr(kernel, "__name__", None) or kernel.fn.__name__)
        original(kernel, grid, tile, arguments)

    original = launch.run_kernel
    monkeypatch.setattr(launch, "run_kernel", run_kernel)
    monkeypatch.setattr(decode, "run_kernel", run_kernel)
    return names


def tensors(queries, keys=40, requires_grad=True):
    return [
        torch.randn(1, heads, n, 16, device=DEVICE, requires_grad=requires_grad)
        for heads, n in ((4, queries), (2, keys), (2, keys))
    ]


def head_numbers(low, high):
    return torch.linspace(low, high, 4, device=DEVICE).requires_grad_()


OPTIONS = {
    "plain": lambda: {"alpha": 1.5},
    "everything": lambda: {
        "alpha": head_numbers(1.1, 2.0),
        "beta": head_numbers(0.5, 2.0),
        "bias": torch.randn(1, 4, 40, 40, device=DEVICE, requires_grad=True),
        "mask": torch.rand(1, 1, 40, 40, device=DEVICE) > 0.2,
        "sinks": head_numbers(-1.0, 1.0),
        "softcap": 3.0,
        "dropout": 0.2,
        "is_causal": True,
        "sliding_window": 30,
    },
}


@pytest.mark.parametrize(
    ("name", "forward", "backward"),
    [
        ("plain", ["survey", "solve", "transpose"], ["grad_rows", "grad_keys"]),
        ("everything", ["survey", "solve", "transpose"], ["grad_rows", "grad_keys", "sum_parts", "grad_bias"]),
    ],
)
def test_training(launched, name, forward, backward):
    output = retrieve(*tensors(40), backend="triton", **OPTIONS[name]())
    assert launched == forward
    launched.clear()
    output.sum().backward()
    assert launched == backward


def test_inference(launched):
    with torch.no_grad():
        retrieve(*tensors(40), backend="triton", **OPTIONS["everything"]())
        assert launched == ["survey", "solve"]
        launched.clear()
        retrieve(*tensors(1), backend="triton", alpha=1.5)
        assert launched == ["score_keys", "find_shift", "read_values", "add_splits"]
        launched.clear()
        query, key, value = tensors(1, 300)
        screen = KeyScreen(key)
        retrieve(query, key, value, backend="triton", alpha=1.5, screen=screen)
        assert launched == ["screen_keys", "find_shift", "read_values", "add_splits"]


def test_only_wanted_gradients(launched):
    query, key, value = tensors(40)
    output = retrieve(query, key.detach(), value.detach(), backend="triton")
    launched.clear()
    output.sum().backward()
    assert launched == ["grad_rows"] and key.grad is None
