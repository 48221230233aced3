# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Tiles are tried, the best is written, and the kernels read it."""

import json

import pytest
import torch

from hf_sparse_hopfield.backends import RetrievalProblem, triton
from hf_sparse_hopfield.backends.triton import tiles
from hf_sparse_hopfield.backends.triton.tiles import Tile, device_kind, tile_for
from hf_sparse_hopfield.benchmark.gpu import autotune
from hf_sparse_hopfield.benchmark.gpu.autotune import Plan, Problem, default_plan, tiles_in_use, tune_and_write
from hf_sparse_hopfield.benchmark.gpu.devices import InterpreterDevice
from hf_sparse_hopfield.retrieval import canonical

from ...backends.triton.conditions import DEVICE, needs_kernels


def test_the_plan_covers_every_entry_of_the_table():
    device = InterpreterDevice()
    device.tiny = False
    assert len(default_plan(device).classes) == 2 * 3 * 3
    assert len(default_plan(device, quick=True).classes) == 2


@pytest.mark.parametrize("work", tiles.WORKS)
def test_problems_are_of_their_class(work):
    plan = Plan([], 1, 2, 20)
    problem = Problem(plan, InterpreterDevice(), 4, work, 16)
    for options in (problem.options, problem.full_options):
        options = {name: value for name, value in options.items() if name != "backend"}
        whole = canonical(RetrievalProblem(*problem.tensors, **options))
        assert triton._settings(whole, whole.query, whole.dropout).work == work


def test_tiles_are_in_use_within_the_block_only(monkeypatch, tmp_path):
    file = tmp_path / "tiles.json"
    file.write_text(json.dumps({"sm90/2/cheap/64": [16, 32, 4, 1]}))
    monkeypatch.setenv("HF_SPARSE_HOPFIELD_TILES", str(file))
    tiles._measured.cache_clear()
    try:
        assert tile_for("sm90", 2, 64, "cheap") == Tile(16, 32, 4, 1)
        with tiles_in_use({"sm90/2/cheap/128": Tile(1, 2, 3, 4)}):
            assert tile_for("sm90", 2, 128, "cheap") == Tile(1, 2, 3, 4)
            assert tile_for("sm90", 2, 64, "cheap") == Tile(*tiles.TABLE["sm90"][2]["cheap"][0])
        assert tile_for("sm90", 2, 64, "cheap") == Tile(16, 32, 4, 1)
        assert tile_for("sm90", 2, 128, "cheap") == Tile(*tiles.TABLE["sm90"][2]["cheap"][1])
    finally:
        monkeypatch.undo()
        tiles._measured.cache_clear()


class Pretended:
    """A problem whose time and outcome depend on the tile alone: 32 x 32 is fastest, but fails with every option."""

    def __init__(self, *rest):
        self.tensors = ()

    def run(self, full=False):
        tile = tile_for("interpreter", 4, 64, "cheap")
        self.last = tile
        if tile.rows == 24 or (full and tile[:2] == (32, 32)):
            raise RuntimeError("out of resource: shared memory")
        return torch.tensor([2.0 if tile.rows == 64 else 1.0])


class PretendedDevice(InterpreterDevice):
    def seconds_of(self, call):
        call()
        tile = tile_for("interpreter", 4, 64, "cheap")
        return {32: 1.0, 16: 2.0, 64: 0.5}.get(tile.rows, 3.0) - 0.1 * tile.stages


def test_the_best_tile_that_runs_with_every_option_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(autotune, "Problem", Pretended)
    (tmp_path / "tiles.json").write_text('{"sm90/2/cheap/64": [1, 2, 3, 4]}')
    plan = Plan([(4, "cheap", 64)], 1, 1, 20, ((24, 16), (64, 16), (32, 32)), (1,), (1, 2))
    said = []
    results = tune_and_write(PretendedDevice(), plan, tmp_path, said.append)
    written = json.loads((tmp_path / "tiles.json").read_text())
    assert (
        written == {"sm90/2/cheap/64": [1, 2, 3, 4], "interpreter/4/cheap/64": [16, 16, 1, 1, 128]} == results["tiles"]
    )
    skipped = {tuple(tile): reason for *tile, reason in results["classes"][0]["skipped"]}
    assert skipped[Tile(24, 16, 1, 1)] == "RuntimeError: out of resource: shared memory"
    assert "off by 1" in skipped[Tile(64, 16, 1, 1)]
    assert skipped[Tile(32, 32, 1, 2)].startswith("with every option: RuntimeError")
    assert any("24 x 16, warps 1, stages 1 left out (RuntimeError" in line for line in said)
    assert any("1.00 times as fast as the table's" in line for line in said)
    text = (tmp_path / "tiles.md").read_text()
    assert "left out: RuntimeError" in text and "| best, table |" in text


def test_no_tile_runs(tmp_path, monkeypatch):
    def run(self, full=False):
        raise RuntimeError("no")

    monkeypatch.setattr(Pretended, "run", run)
    monkeypatch.setattr(autotune, "Problem", Pretended)
    said = []
    plan = Plan([(4, "cheap", 64)], shapes=((16, 16),))
    assert tune_and_write(PretendedDevice(), plan, tmp_path, said.append)["tiles"] == {}
    assert not (tmp_path / "tiles.json").exists()
    assert "interpreter/4/cheap/64: no tile runs; the table's stays" in said


def test_a_file_that_is_not_ours(tmp_path):
    (tmp_path / "tiles.json").write_text("tiles")
    with pytest.raises(ValueError, match="tiles.json exists and is not JSON"):
        tune_and_write(InterpreterDevice(), Plan([]), tmp_path)


class TestKernels:
    pytestmark = needs_kernels

    def test_what_is_written_is_read(self, device, tmp_path, monkeypatch):
        plan = Plan([(4, "heavy", 64)], 1, 1, 16, ((24, 16), (16, 32)), (1,), (1,), 0.0)
        tune_and_write(device, plan, tmp_path)
        (name, tile) = json.loads((tmp_path / "tiles.json").read_text()).popitem()
        kind = device_kind(torch.device(DEVICE))
        assert name == f"{kind}/4/heavy/64"
        assert "arange's range must be a power of 2" in (tmp_path / "tiles.md").read_text()  # 24 rows
        monkeypatch.setenv("HF_SPARSE_HOPFIELD_TILES", str(tmp_path / "tiles.json"))
        tiles._measured.cache_clear()
        try:
            assert tile_for(kind, 4, 64, "heavy") == tuple(tile)
            Problem(plan, device, 4, "heavy", 64).run()
        finally:
            monkeypatch.undo()
            tiles._measured.cache_clear()
