# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Runs `run_cases.py`: in this process, in a process of its own, or in several with `accelerate launch`."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import torch

from . import run_cases


SCRIPT = Path(run_cases.__file__)
CONFIGS = SCRIPT.parents[2] / "examples" / "accelerate_configs"


def here(cases: list[dict], folder: Path) -> dict[str, dict]:
    """Results of each case, trained in this process."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in the other processes: sums in another order have other bits
    try:
        # through JSON, as those of other processes are
        return {case["name"]: json.loads(json.dumps(run_cases.run(case, folder))) for case in cases}
    finally:
        torch.set_num_threads(threads)


def alone(cases: list[dict], folder: Path) -> subprocess.CompletedProcess:
    """Train in one other process."""
    return _run([sys.executable, str(SCRIPT)], cases, folder)


def together(
    cases: list[dict], folder: Path, config: Path = CONFIGS / "cpu_multi_process.yaml", *arguments: str
) -> list[dict[str, dict]]:
    """Train in two processes; the results of each process."""
    finished = _run([*in_two_processes(config), str(SCRIPT)], cases, folder, *arguments)
    assert finished.returncode == 0, finished.stderr[-6000:]
    return [
        {case["name"]: json.loads((folder / f"{case['name']}.{rank}.json").read_text()) for case in cases}
        for rank in range(2)
    ]


def in_two_processes(config: Path = CONFIGS / "cpu_multi_process.yaml") -> list[str]:
    """The command that starts a script in two processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launcher = [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch", "--config_file", str(config)]
    return [*launcher, "--num_processes", "2", "--main_process_port", str(port)]


def _run(command: list[str], cases: list[dict], folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    file = folder / "cases.json"
    file.write_text(json.dumps(cases))
    root = str(SCRIPT.parents[2])
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    return subprocess.run(
        [*command, str(file), *arguments], env=environment, capture_output=True, text=True, timeout=600, check=False
    )
