# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Peak memory of a method, measured in a fresh process."""

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from .methods import attend_once, method
from .work import Work


def _resident(field: str) -> int:
    """`VmRSS` or `VmHWM` of this process in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}")


def extra_memory(call: Callable[[], object]) -> int:
    """Peak memory of this process during a call, beyond what it had before, in bytes. Only on Linux, in a fresh process."""
    before = _resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    call()
    return max(0, _resident("VmHWM") - before)


def peak_memory_here(work: Work, name: str) -> int:
    """Peak memory of this process in bytes, beyond its input tensors. Call it in a fresh process on Linux."""
    # Libraries and threads initialize on first use, which is not to be measured.
    small = dataclasses.replace(work, length=256, batch=1, heads=2, kv_heads=0)
    attend, attend_small = method(name, work), method(name, small)
    if attend is None or attend_small is None:
        raise ValueError(f"method {name!r} is not installed or does not apply to {work.label}.")
    attend_once(small, attend_small, small.tensors())
    tensors = work.tensors()
    return extra_memory(lambda: attend_once(work, attend, tensors))


def peak_memory(work: Work, name: str) -> int | None:
    """
    Peak extra memory of a method in bytes, measured in a separate process.

    Returns:
        `int`, or `None` if the system does not report it (anything but Linux).
    """
    arguments = json.dumps([dataclasses.asdict(work), name, torch.get_num_threads()])
    result = subprocess.run([sys.executable, "-m", __name__, arguments], capture_output=True, text=True)
    return int(result.stdout) if result.returncode == 0 else None


if __name__ == "__main__":
    fields, method_name, threads = json.loads(sys.argv[1])
    torch.set_num_threads(threads)
    print(peak_memory_here(Work(**fields), method_name))
