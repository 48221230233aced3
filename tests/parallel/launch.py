# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Runs a script in several processes with `torchrun`, on CPUs with gloo."""

import os
import socket
import subprocess
import sys
from pathlib import Path


ROOT = Path(__file__).parents[2]


def torchrun(script: str, *arguments: object, processes: int = 2) -> subprocess.CompletedProcess:
    """Run `tests/parallel/<script>` in several processes. It must succeed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(processes)]
    command += ["--master_port", str(port), str(ROOT / "tests" / "parallel" / script), *map(str, arguments)]
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    raised = [line for line in finished.stderr.splitlines() if line.startswith("[rank0]")]
    assert finished.returncode == 0, "\n".join(raised[-30:]) or finished.stderr[-6000:]
    return finished
