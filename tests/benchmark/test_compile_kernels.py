# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The Triton kernels compile for GPUs that are not here; no tile of the table spills registers or exceeds shared memory."""

import importlib.util
import os
from dataclasses import replace

import pytest

from hf_sparse_hopfield.backends.triton.tiles import TABLE, WORKS, Tile, decode_tile, tile_for
from hf_sparse_hopfield.benchmark.compile_kernels import DECODERS, DEVICES, KERNELS, Job, Used, compiled, jobs, table


pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed"),
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter compiles nothing"),
]


WIDTHS = [64, 128, 256]
OPTIONS = ["plain", "settings", "all"]


def fits(job, spilled=0):
    used = compiled(job)
    return used.spilled <= spilled and used.shared <= job.device.shared


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


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("device", DEVICES)
def test_no_tile_of_the_table_spills(device, dtype):
    all_jobs = list(jobs([device], [dtype], WIDTHS, OPTIONS, list(KERNELS)))
    assert {job.options for job in all_jobs} == set(OPTIONS)
    assert [job for job in all_jobs if not fits(job)] == []


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("device", DEVICES)
def test_no_tile_for_more_rows_of_decode_spills(device, dtype):
    """The kernels of decode have another tile from 17 to 64 rows."""
    failed, count = [], 0
    for job in jobs([device], [dtype], WIDTHS, OPTIONS, list(DECODERS)):
        for rows in (32, 64):
            tile = decode_tile(job.device.kind, 4 if dtype == "fp32" else 2, job.width, rows)
            if tile is not None:
                count += 1
                failed += [] if fits(replace(job, tile=tile)) else [(job, tile)]
    assert count > 0 and failed == []


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
