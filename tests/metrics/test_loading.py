# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import os
import subprocess
import sys

import pytest

from hf_sparse_hopfield.metrics import METRICS, load_metric

from .test_metrics import PACKAGE


OFFLINE = """
import socket, sys

def refuse(*args, **kwargs):
    raise AssertionError("a socket was opened")

from hf_sparse_hopfield.metrics import METRICS, load_metric
assert "evaluate" not in sys.modules
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
for name in METRICS:
    if name != "sacrebleu":
        load_metric(name)
print(load_metric("accuracy").compute(predictions=[1, 0], references=[1, 1])["accuracy"])
"""


def test_two_processes_load_at_once_and_without_network(tmp_path):
    before = sorted(PACKAGE.glob("metrics/*/*"))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    environment |= {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "HF_EVALUATE_OFFLINE": "1"}
    environment |= {"PYTHONPATH": str(PACKAGE.parent)}
    command = [sys.executable, "-c", OFFLINE]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment, "cwd": tmp_path}
    for process in [subprocess.Popen(command, **options) for _ in range(2)]:
        printed, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        assert printed == "0.5\n"
    assert sorted(PACKAGE.glob("metrics/*/*")) == before  # nothing is written beside the modules


def test_the_list_names_every_module():
    assert METRICS == tuple(sorted(path.parent.name for path in PACKAGE.glob("metrics/*/*.py")))
    with pytest.raises(ValueError, match="name must be one of 'accuracy', .*, got 'bleurt'"):
        load_metric("bleurt")


@pytest.mark.parametrize("name", METRICS)
def test_imports_as_evaluate_reads_them(name):
    text = (PACKAGE / "metrics" / name / f"{name}.py").read_text(encoding="utf-8")
    imports = [line for line in text.splitlines() if line.startswith(("import ", "from "))]
    assert imports and not any("," in line or "hf_sparse_hopfield" in line for line in imports)


def test_a_missing_package_and_a_cache_that_cannot_be_written(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(ImportError, match=r"hf-sparse-hopfield\[compare\]"):
        load_metric("sacrebleu")

    def fail(*args, **kwargs):
        raise PermissionError("[Errno 13] Permission denied: '/readonly/modules'")

    monkeypatch.setattr("evaluate.load", fail)
    with pytest.raises(PermissionError, match="'/readonly/modules'.*set HF_HOME"):
        load_metric("accuracy")
