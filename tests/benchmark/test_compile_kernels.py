# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The Triton kernels compile for GPUs that are not here; no tile of the table spills registers or exceeds shared memory."""

import importlib.util
import os

import pytest

from hf_sparse_hopfield.backends.triton.tiles import TABLE, WORKS, Tile, tile_for
from hf_sparse_hopfield.benchmark.compile_kernels import DEVICES, KERNELS, Job, Used, compiled, jobs, table


pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed"),
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter compiles nothing"),
]


def fits(job):
    used = compiled(job)
    return used.spilled == 0 and used.shared <= job.device.shared


@pytest.mark.parametrize(
    ("kernel", "device", "member"),
    [
        ("survey", "sm_80", 20),
        ("solve", "sm_90", 15),
        ("grad_rows", "sm_80", 15),
        ("grad_keys", "sm_90", 0),
        ("screen_keys", "sm_90", 0),
    ],
)
def test_some_compile(kernel, device, member):
    """One of each; the whole table is a slow test."""
    assert fits(Job(kernel, DEVICES[device], "bf16", 64, member))


def test_a_tile_that_spills_is_noticed():
    job = Job("grad_rows", DEVICES["sm_80"], "bf16", 128, 0, "all", Tile(128, 64, 4, 1))
    assert compiled(job).spilled > 0


def small(job):
    """float32 with heads of 256 is too wide for any tile with all options: a few bytes spill."""
    return job.dtype == "fp32" and job.width == 256 and compiled(job).spilled <= 32


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("device", DEVICES)
def test_no_tile_of_the_table_spills(device, dtype):
    all_jobs = list(jobs([device], [dtype], [64, 128, 256], ["plain", "settings", "all"], list(KERNELS)))
    assert [job for job in all_jobs if not (fits(job) or small(job))] == []


def test_the_table_is_whole():
    for kind, sizes in TABLE.items():
        for size in (2, 4):
            for work in WORKS:
                for width in (16, 64, 80, 128, 192, 256):
                    tile = tile_for(kind, size, width, work)
                    assert all(n & (n - 1) == 0 for n in tile[:3]) and tile.rows >= 16 and tile.keys >= 16, (
                        kind,
                        sizes,
                    )


def test_the_table_as_markdown():
    survey, solve = (Job(kernel, DEVICES["sm_80"], "bf16", 64, 20) for kernel in ("survey", "solve"))
    lines = table({survey: Used(100, 0, 2048), solve: Used(200, 8, 4096)}).splitlines()
    assert lines[0].endswith("| survey | solve |") and lines[0].count("|") == lines[2].count("|")
    assert lines[2].startswith("| sm_80 | bf16 | 64 | plain | 2 |") and lines[2].endswith("| 100, 0, 2 | 200, 8, 4 |")
