# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Peak memory of a model while it runs a batch, in a fresh process."""

import json
import os
import subprocess
import sys
import tempfile
from typing import Any

import torch

from ..benchmark.peak_memory import extra_memory
from ..checkpoints.loading import load_model
from .tasks import task_class


def peak_memory(path: str, task: str, inputs: dict[str, Any], dtype: str) -> int | None:
    """
    Measure the memory that a model needs beyond its weights.

    Args:
        path (`str`): Local directory or Hub id of its checkpoint.
        task (`str`): Name of the task.
        inputs (`dict`): A batch, as [`Task.run`] takes it.
        dtype (`str`): Name of the dtype of the weights.

    Returns:
        `int`: Bytes; `None` if the system does not report them (anything but Linux).
    """
    if sys.platform != "linux":
        return None
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "inputs.pt")
        torch.save(inputs, file)
        arguments = json.dumps([path, task, file, dtype, torch.get_num_threads()])
        result = subprocess.run([sys.executable, "-m", __name__, arguments], capture_output=True, text=True)
    if result.returncode:
        said = result.stderr.strip().splitlines() or [f"exit code {result.returncode}"]
        raise RuntimeError(f"the process that measures the peak memory of {path!r} failed: {said[-1]}")
    return int(result.stdout.split()[-1])


@torch.no_grad()
def _peak_memory_here(path: str, task: str, file: str, dtype: str) -> int:
    model = load_model(path, dtype=getattr(torch, dtype))
    inputs, run = torch.load(file, weights_only=True), task_class(task).run
    first = {name: value[:1] if isinstance(value, torch.Tensor) else value for name, value in inputs.items()}
    run(model, first)  # libraries and threads initialise on first use, which is not to be measured
    return extra_memory(lambda: run(model, inputs))


if __name__ == "__main__":
    *what, threads = json.loads(sys.argv[1])
    torch.set_num_threads(threads)
    print(_peak_memory_here(*what))
