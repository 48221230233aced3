# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""A device that is not there is an error that says what is missing; one that is there can be timed."""

import importlib.util
import time

import pytest
import torch

from hf_sparse_hopfield.benchmark.gpu.devices import InterpreterDevice, find_device
from hf_sparse_hopfield.cli.main import main

from ...backends.triton.conditions import INTERPRETED, ON_GPU, needs_kernels, needs_triton


def pretend(monkeypatch, cuda=None, interpreted=False):
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("TRITON_INTERPRET", "1" if interpreted else "0")


@needs_triton
def test_no_gpu(monkeypatch, capsys):
    pretend(monkeypatch)
    assert main(["bench", "--device", "cuda"]) == 1
    assert "--device cuda: there is no GPU: torch" in capsys.readouterr().err
    pretend(monkeypatch, cuda="12.8")
    with pytest.raises(ValueError, match="is_available\\(\\) is False; nvidia-smi"):
        find_device("cuda")


@needs_triton
def test_the_interpreter_must_be_asked_for(monkeypatch):
    pretend(monkeypatch)
    with pytest.raises(ValueError, match="set TRITON_INTERPRET=1"):
        find_device("interpreter")
    pretend(monkeypatch, interpreted=True)
    assert find_device("interpreter").tiny
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(ValueError, match="TRITON_INTERPRET=1 runs the kernels on the CPU; unset it"):
        find_device("cuda")


def test_no_triton(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="triton is not installed; use pip install"):
        find_device("cuda")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--device cuda --strict", "--strict does not go with --device cuda: the promises are figures of CPUs"),
        ("--device cuda --instructions AVX2", "--instructions does not go with --device cuda"),
        ("--device cuda --threads 0", "--threads must be at least 1, got 0"),
        ("--autotune", "--autotune needs --device cuda"),
    ],
)
def test_options_of_the_other_device(options, message, capsys):
    assert main(["bench", *options.split()]) == 1
    assert message in capsys.readouterr().err


def test_an_unknown_device_does_not_parse(capsys):
    with pytest.raises(SystemExit) as error:
        main(["bench", "--device", "tpu"])
    assert error.value.code == 2


def test_the_interpreter_is_timed_by_the_clock():
    device = InterpreterDevice()
    assert 0.01 < device.seconds_of(lambda: time.sleep(0.01)) < 1
    assert device.peak_bytes(lambda: None) is None
    assert device.graphed(len) is len
    assert device.description()["torch"] == torch.__version__


@pytest.mark.skipif(not ON_GPU or INTERPRETED, reason="needs a GPU")
class TestGpu:
    pytestmark = needs_kernels

    def test_time_and_memory(self):
        device = find_device("cuda")
        a = torch.randn(4096, 4096, device=device.place)
        device.seconds_of(lambda: a @ a)
        assert device.seconds_of(lambda: a.sum()) < device.seconds_of(lambda: [a @ a for _ in range(20)])
        assert a.nbytes <= device.peak_bytes(lambda: a + 1) < 2 * a.nbytes
        assert device.description()["gpu"].startswith(torch.cuda.get_device_name())

    def test_graph(self):
        device = find_device("cuda")
        total = torch.zeros(1, device=device.place)
        replay = device.graphed(lambda: total.add_(1))
        before = total.item()
        replay()
        assert total.item() == before + 1
