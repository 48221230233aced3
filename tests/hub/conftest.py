# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .server import WRITE_TOKEN, LoopbackHub


ROOT = Path(__file__).parents[2]


class Failed(Exception):
    """What went wrong in the other process: the name of the exception, and what it says."""

    def __init__(self, kind: str, message: str, output: str) -> None:
        super().__init__(f"{kind}: {message}\n{output}")
        self.kind, self.message = kind, message


class Worker:
    """Another process that runs functions of `actions.py`, with a home of its own and the loopback Hub for the Hub."""

    def __init__(self, hub: LoopbackHub, home: Path) -> None:
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("HF_", "TRANSFORMERS_"))},
            "HF_ENDPOINT": hub.address,
            "HF_HOME": str(home),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "HF_TOKEN": WRITE_TOKEN,
            "NO_PROXY": "127.0.0.1,localhost",
            "OMP_NUM_THREADS": "1",
            "TMPDIR": str(home),
        }
        home.mkdir(parents=True, exist_ok=True)
        self.output = ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.hub.actions"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=self.environment,
        )

    def start(self, name: str, *args, environment: dict[str, str] | None = None, **kwargs) -> None:
        """Have a function run, and do not wait for it."""
        call = {"name": name, "args": args, "kwargs": kwargs, "environment": environment or {}}
        self.process.stdin.write(json.dumps(call) + "\n")
        self.process.stdin.flush()

    def finish(self):
        """What the function that was started gives; [`Failed`] if it raises."""
        answer = json.loads(self.process.stdout.readline())
        self.output = answer["output"]
        if answer["error"] is not None:
            raise Failed(*answer["error"], self.output)
        return answer["result"]

    def call(self, name: str, *args, **kwargs):
        """Have a function run."""
        self.start(name, *args, **kwargs)
        return self.finish()

    def shell(self, *command: str) -> subprocess.CompletedProcess:
        """Run a program with the same environment."""
        return subprocess.run(command, env=self.environment, capture_output=True, text=True)

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()


@pytest.fixture(scope="module")
def hub():
    with LoopbackHub() as hub:
        yield hub


@pytest.fixture(scope="module")
def make_worker(hub, tmp_path_factory):
    workers = []

    def make() -> Worker:
        workers.append(Worker(hub, tmp_path_factory.mktemp("home")))
        return workers[-1]

    yield make
    for worker in workers:
        worker.close()


@pytest.fixture(scope="module")
def worker(make_worker):
    """The process that pushes."""
    worker = make_worker()
    worker.start("prepare", ["torch", "tests.tiny_models"])
    worker.finish()
    return worker


@pytest.fixture(autouse=True)
def _no_failures(hub):
    yield
    hub.fail = lambda step: None
