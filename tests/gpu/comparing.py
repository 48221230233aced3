# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""What the tests of a GPU have in common: the same on the device and on the CPU."""

import copy
from collections.abc import Callable

import torch
from torch import nn


def moved(tree, device):
    """Tensors in dicts, lists and tuples, on a device. Those that require gradients are leaves there."""
    if isinstance(tree, torch.Tensor):
        return tree.detach().to(device).requires_grad_(tree.requires_grad)
    if isinstance(tree, dict):
        return {name: moved(value, device) for name, value in tree.items()}
    return type(tree)(moved(value, device) for value in tree) if isinstance(tree, (list, tuple)) else tree


def assert_same(actual: torch.Tensor, expected: torch.Tensor, name: str = "", tolerance: float = 1e-3) -> None:
    """Within `tolerance` of the largest entry."""
    assert actual.shape == expected.shape, name
    off = (actual.cpu().double() - expected.cpu().double()).abs().max().item() if actual.numel() else 0.0
    assert off <= tolerance * max(1e-3, expected.abs().max().item() if expected.numel() else 0.0), (
        f"{name}: off by {off}"
    )


def assert_same_module(
    module: nn.Module, run: Callable[[nn.Module, str], torch.Tensor], device: str, tolerance: float = 1e-3
) -> None:
    """
    Compare outputs and gradients of a module on the device and on the CPU.

    Args:
        module (`nn.Module`): The module, on the CPU.
        run (`Callable`): Called with a module and its device; returns an output.
        device (`str`): The device.
        tolerance (`float`, *optional*, defaults to 1e-3): As for [`assert_same`].
    """
    other = copy.deepcopy(module).to(device)
    results = []
    for one, place in ((other, device), (module, "cpu")):
        one.zero_grad()
        output = run(one, place)
        assert output.device.type == torch.device(place).type
        output.float().square().mean().backward()
        gradients = {name: p.grad for name, p in one.named_parameters() if p.grad is not None}
        results.append({"output": output.detach(), **gradients})
    actual, expected = results
    assert actual.keys() == expected.keys() and len(actual) > 1
    for name, tensor in expected.items():
        assert_same(actual[name], tensor, name, tolerance)
