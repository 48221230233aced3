# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""A memory spread over processes finds what one with all patterns finds; nothing is left out without an error."""

from pathlib import Path

import pytest
import torch

from hf_sparse_hopfield import HopfieldMemory
from hf_sparse_hopfield.layers import MemoryMatches
from hf_sparse_hopfield.parallel import ShardedMemory

from .launch import torchrun
from .run_memory import queries


def run(folder: Path, case: str, processes: int = 2) -> list[dict]:
    torchrun("run_memory.py", folder, case, processes=processes)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(processes)]


def saved(folder: Path) -> HopfieldMemory:
    """A memory of several files with removed patterns."""
    generator = torch.Generator().manual_seed(0)
    memory = HopfieldMemory(torch.randn(2000, 24, generator=generator), alpha=1.5, beta=0.7)
    memory.save(folder / "memory")
    memory.add(torch.randn(701, 24, generator=generator))
    memory.remove(range(100, 300))
    memory.save(folder / "memory")
    return memory


def assert_same(actual: dict, expected: MemoryMatches) -> None:
    assert torch.equal(actual["rows"], expected.rows)
    for name in ("weights", "output", "energies"):
        torch.testing.assert_close(actual[name], getattr(expected, name), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("processes", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_equals_one_process(tmp_path, processes):
    memory = saved(tmp_path)
    results = run(tmp_path, "search", processes)
    assert sum(result["own"] for result in results) == len(memory) == 2501
    for rank, result in enumerate(results):
        assert result["length"] == len(memory)
        for steps in (1, 3):
            assert_same(result[f"same {steps}"], memory.search(queries(40), steps))
            own = memory.search(queries(5 + 3 * rank, seed=10 + rank), steps)
            most = result[f"other {steps}"]["rows"].shape[1]  # of the queries of all processes
            assert (result[f"other {steps}"]["rows"][:, own.rows.shape[1] :] == -1).all() and most >= own.rows.shape[1]
            for name in ("rows", "weights"):
                result[f"other {steps}"][name] = result[f"other {steps}"][name][:, : own.rows.shape[1]]
            assert_same(result[f"other {steps}"], own)
        assert result["none"]["output"].shape == (4 * rank, 24)
        assert_same(result["shape"], memory.search(queries(6).reshape(2, 3, 24)))
        torch.testing.assert_close(
            result["retrieved"], memory.retrieve(queries(2), steps=2, tolerance=0.5), atol=1e-6, rtol=1e-6
        )
        flat = HopfieldMemory(memory.patterns, 1.5, 1e-3).search(queries(3))
        torch.testing.assert_close(result["flat"]["output"], flat.output, atol=1e-6, rtol=1e-5)


def test_fewer_patterns_than_processes(tmp_path):
    for result in run(tmp_path, "few", 4):
        assert result["rows"].tolist() == [[0], [1], [2]]


def test_an_error_in_one_process_is_one_in_all(tmp_path):
    saved(tmp_path)
    first, second = run(tmp_path, "errors")
    for said in (first, second):
        assert "all processes must have the same beta: process 0 has 1.0, process 1 has 2.0" in said["settings"]
        assert "steps must be the same in all processes, got [1, 2]" in said["steps"]
        assert "alpha=1.0 gives every pattern weight" in said["softmax"]
        assert "the memory is empty" in said["empty"]
    assert second["missing"].startswith("FileNotFoundError")
    assert "process 1 could not search its part of the memory: FileNotFoundError" in first["missing"]
    assert second["queries"].startswith("ValueError: queries must have shape (..., 4), got (2, 5)")
    assert "process 1 could not search its part of the memory: ValueError" in first["queries"]
    assert second["not finite"].startswith("ValueError: queries must be finite")
    assert "RuntimeError: process 1" in first["not finite"]
    assert second["disk"] == "OSError: the disk is gone"
    assert "process 1 could not search its part of the memory: OSError: the disk is gone" in first["disk"]


def test_a_lost_process_is_an_error(tmp_path):
    first, _ = run(tmp_path, "lost")
    assert first["said"].startswith("a part of the memory is lost: another process of the group has ended")


def test_needs_a_group():
    with pytest.raises(RuntimeError, match="need `torch.distributed.init_process_group` first"):
        ShardedMemory(HopfieldMemory(torch.eye(3)))
