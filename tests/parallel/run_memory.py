# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""What the processes of the tests of a sharded memory do: `run_memory.py FOLDER CASE`. Each writes `FOLDER/<rank>.pt`."""

import os
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from hf_sparse_hopfield import HopfieldMemory
from hf_sparse_hopfield.parallel import ShardedMemory


def queries(count: int, width: int = 24, seed: int = 1) -> torch.Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed)) * 2


def search(folder: Path, rank: int) -> dict:
    """The same queries in all processes, other ones in each, and none in some; one step and several."""
    memory = ShardedMemory.load(folder / "memory")
    results = {"length": len(memory), "own": len(memory.memory)}
    for steps in (1, 3):
        results[f"same {steps}"] = vars(memory.search(queries(40), steps))
        results[f"other {steps}"] = vars(memory.search(queries(5 + 3 * rank, seed=10 + rank), steps))
    results["none"] = vars(memory.search(queries(4 * rank, seed=20)))
    results["shape"] = vars(memory.search(queries(6).reshape(2, 3, 24)))
    results["retrieved"] = memory.retrieve(queries(2), steps=2, tolerance=0.5)
    results["flat"] = vars(ShardedMemory(HopfieldMemory(memory.memory.patterns, 1.5, 1e-3)).search(queries(3)))
    return results


def few(folder: Path, rank: int) -> dict:
    """Fewer patterns than processes."""
    memory = HopfieldMemory(torch.eye(3) * 5).share(rank, dist.get_world_size())
    return vars(ShardedMemory(memory).search(torch.eye(3)))


def errors(folder: Path, rank: int) -> dict:
    """An error in one process is one in all."""
    said = {}

    def note(name, action):
        try:
            action()
            said[name] = "nothing"
        except (OSError, RuntimeError, TypeError, ValueError) as error:
            said[name] = f"{type(error).__name__}: {error}"

    own = HopfieldMemory(torch.randn(10, 4), beta=1.0 + rank)
    note("settings", lambda: ShardedMemory(own))
    note("missing", lambda: ShardedMemory.load(folder / ("memory" if rank == 0 else "nowhere")))
    memory = ShardedMemory(HopfieldMemory(torch.randn(10, 4)))
    note("queries", lambda: memory.search(torch.randn(2, 4) if rank == 0 else torch.randn(2, 5)))
    note("not finite", lambda: memory.search(torch.full((2, 4), torch.nan if rank else 0.0)))
    note("steps", lambda: memory.search(torch.randn(2, 4), steps=1 + rank))
    note("softmax", lambda: ShardedMemory(HopfieldMemory(torch.randn(10, 4), alpha=1.0)))
    note("empty", lambda: ShardedMemory(HopfieldMemory(torch.empty(0, 4))).search(torch.randn(4)))
    if rank == 1:  # the patterns vanish while the memory is in use

        def fail(*_):
            raise OSError("the disk is gone")

        memory.memory.places = fail
    note("disk", lambda: memory.search(torch.randn(2, 4)))
    return said


def lost(folder: Path, rank: int) -> dict:
    """A process that ends takes its patterns with it."""
    memory = ShardedMemory(HopfieldMemory(torch.randn(10, 4)))
    memory.search(torch.ones(4))
    if rank == 1:
        torch.save({}, folder / "1.pt")
        os._exit(0)
    try:
        memory.search(torch.ones(4))
    except RuntimeError as error:
        return {"said": str(error)}
    return {"said": "nothing"}


if __name__ == "__main__":
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    target, case = Path(sys.argv[1]), sys.argv[2]
    number = dist.get_rank()
    torch.save(
        {"search": search, "few": few, "errors": errors, "lost": lost}[case](target, number), target / f"{number}.pt"
    )
    if case == "lost":
        os._exit(0)  # there is no group left to leave
    dist.destroy_process_group()
