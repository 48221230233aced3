# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The methods compute the same attention, on the CPU as far as they run there."""

import dataclasses

import pytest
import torch

from hf_sparse_hopfield.benchmark import Work
from hf_sparse_hopfield.benchmark.gpu.devices import InterpreterDevice
from hf_sparse_hopfield.benchmark.gpu.methods import NotApplicable, flash_applies, method

from ...backends.triton.conditions import DEVICE, INTERPRETED, ON_GPU, needs_kernels


def one_hot(work, device):
    """Scores so far apart that softmax and entmax choose the same single key."""
    query, key, value = (torch.zeros_like(tensor) for tensor in work.tensors(device))
    key[..., 0, 0] = 1.0
    query[..., 0] = 1e3
    value[..., 0, :] = torch.arange(1.0, work.head_dim + 1)
    return query, key, value


WORKS = [
    Work("forward", 1, 2, 20, is_causal=True, head_dim=16),
    Work("forward", 1, 2, 20, head_dim=16),
    Work("decode", 1, 2, 40, kv_heads=1, head_dim=16),
]


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.label)
@pytest.mark.parametrize("name", ["sdpa", "flex", "blocked"])
def test_methods_agree(name, work):
    tensors = one_hot(work, "cpu")
    attend, _ = method(name, work, InterpreterDevice(), tensors)
    expected = tensors[2][:, :, :1].repeat_interleave(2 // tensors[2].shape[1], 1).expand(tensors[0].shape)
    torch.testing.assert_close(attend(*tensors), expected)


@pytest.mark.parametrize("name", ["triton", "screened"])
class TestOurs:
    pytestmark = needs_kernels

    @pytest.mark.parametrize("work", WORKS[1:], ids=lambda work: work.label)
    def test_methods_agree(self, name, work, device):
        tensors = one_hot(work, DEVICE)
        expected = tensors[2][:, :, :1].repeat_interleave(2 // tensors[2].shape[1], 1).expand(tensors[0].shape)
        torch.testing.assert_close(method(name, work, device, tensors)[0](*tensors), expected)


def test_what_does_not_apply():
    work = Work("training", 1, 2, 20, head_dim=16)
    tensors = work.tensors()
    assert not flash_applies(work, tensors)
    assert method("sdpa", work, InterpreterDevice(), tensors)[1] == "default"
    with pytest.raises(NotApplicable, match="no backward pass on the CPU"):
        method("flex", work, InterpreterDevice(), tensors)
    decode = dataclasses.replace(work, kind="decode")
    with pytest.raises(NotApplicable, match="as many queries as keys"):
        method("adasplash", decode, InterpreterDevice(), decode.tensors())


@pytest.mark.skipif(not ON_GPU or INTERPRETED, reason="needs a GPU")
class TestGpu:
    pytestmark = needs_kernels

    @pytest.mark.parametrize("kind", ["forward", "training", "decode"])
    @pytest.mark.parametrize("is_causal", [True, False])
    def test_flash_and_compiled_flex(self, kind, is_causal):
        from hf_sparse_hopfield.benchmark.gpu.devices import CudaDevice

        device = CudaDevice()
        kv_heads = 2 if kind == "decode" else 0
        work = Work(kind, 2, 4, 256, is_causal=is_causal, kv_heads=kv_heads, dtype="bfloat16")
        tensors = work.tensors(device.place)
        outputs = [method(name, work, device, tensors)[0](*tensors) for name in ("sdpa", "flex")]
        torch.testing.assert_close(outputs[1], outputs[0], rtol=2e-2, atol=2e-2)
        single = dataclasses.replace(work, dtype="float32")
        assert method("sdpa", single, device, single.tensors(device.place))[1] == "default"
