# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Layers and models on fake CUDA tensors: which backend runs, no mix of devices, no wait for the GPU, no copy from the host."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from .conditions import INTERPRETED, ON_GPU, needs_triton


pytestmark = [
    needs_triton,
    pytest.mark.skipif(INTERPRETED or ON_GPU, reason="fakes the GPU that is not there"),
    pytest.mark.skipif(shutil.which("g++") is None or sys.platform != "linux", reason="needs g++"),
]
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def counts(tmp_path_factory):
    """What `run_fake_cuda.py` counts."""
    library = tmp_path_factory.mktemp("fake_cuda") / "fake_cuda.so"
    torch_folder = Path(torch.__file__).parent
    command = [
        "g++",
        "-shared",
        "-fPIC",
        "-std=c++20",
        f"-I{torch_folder / 'include'}",
        str(HERE / "fake_cuda.cpp"),
        "-o",
        library,
    ]
    subprocess.run([*command, f"-L{torch_folder / 'lib'}", "-ltorch_cpu", "-lc10"], check=True)
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[2])}
    run = subprocess.run(
        [sys.executable, "-W", "ignore", HERE / "run_fake_cuda.py", library],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-4000:]
    return json.loads(run.stdout)


def test_every_case_runs_on_triton(counts):
    assert {record["backend"] for record in counts["retrieve"].values()} == {"triton"}
    assert len(counts["retrieve"]) > 20


def test_retrieval_is_one_operator(counts):
    for name, record in counts["retrieve"].items():
        forward = record["forward"]
        assert forward["copies"] == forward["waits"] == 0, name
        extra = {"dropout": {"randint": 1}}.get(name, {})
        if name == "decode":
            assert forward["launches"] == {"triton_decode": 1}
        elif name != "several steps":
            assert forward["launches"] == {"triton_forward": 1, **extra}, name
            assert record["backward"]["launches"]["triton_backward"] == 1, name
            assert set(record["backward"]["launches"]) <= {"triton_backward", "ones_like"}, name


@pytest.mark.parametrize("kind", ["layers", "models"])
def test_layers_and_models(counts, kind):
    attentions = {"llama": 2, "bert": 2, "t5": 6, "whisper": 6}
    for name, record in counts[kind].items():
        if "generate" in name:
            assert record["forward"]["launches"]["triton_decode"] == 2
            assert record["forward"]["launches"].get("triton_append_keys", 0) == (2 if "many" in name else 0)
        else:
            assert record["forward"]["launches"]["triton_forward"] == attentions.get(name, 1), name
            assert record["backward"]["launches"]["triton_backward"] == attentions.get(name, 1), name
            assert record["backward"]["waits"] == 0, name
        assert record["forward"]["copies"] == record["forward"]["waits"] == 0, name


def test_memories(counts):
    """A retrieval is one operator and waits for nothing; what stores patterns looks once whether they are finite."""
    for name, record in counts["memories"].items():
        operators = {key: count for key, count in record["launches"].items() if key.startswith("triton")}
        if name.startswith("retrieve"):
            expected = {"triton_decode": 1} if "a few" in name else {"triton_forward": 3 if "steps" in name else 1}
            others = name.endswith(("softmax", "powers"))  # alpha = 1 is for SDPA, powers are products of matrices
            assert operators == ({} if others else expected), name
            assert record["waits"] == 0, name
        elif name.startswith(("make", "add")):
            assert record["waits"] == (0 if "CPU" in name else 1), name
        assert record["copies"] == (2 if name == "move segments" else 0), name
    plain = [counts["memories"][name]["launches"] for name in ("retrieve", "retrieve a few", "retrieve from segments")]
    assert plain == [{"triton_forward": 1}, {"triton_decode": 1}, {"triton_forward": 1}]
    assert counts["memories"]["search"]["waits"] > 0  # the result has the size of the support
