# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hf_sparse_hopfield.demo.text import TEXT

from ..leftovers import leftovers


ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("script", sorted(path.name for path in (ROOT / "conversion").glob("*.py")))
def test_help_of_the_scripts(script):
    done = subprocess.run(
        [sys.executable, ROOT / "conversion" / script, "--help"], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert "examples:" in done.stdout and "--overwrite" in done.stdout


def test_a_full_disk_leaves_nothing(source, tmp_path):
    output = tmp_path / "out"
    command = [sys.executable, ROOT / "conversion" / "convert_dense_to_sparse.py", source, output]

    def limited():  # a limit on the size of files stops writing just as a full disk does, in the middle of the weights
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))

    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, cwd=ROOT, preexec_fn=limited
    )
    assert done.returncode == 1
    assert "error: " in done.stderr and "File too large" in done.stderr and "Traceback" not in done.stderr
    assert not output.exists() and leftovers(tmp_path) == []


def test_a_killed_conversion_cleans_up(source, tmp_path):
    (tmp_path / "long.txt").write_text(TEXT * 40)
    output = tmp_path / "out"
    command = [sys.executable, ROOT / "conversion" / "convert_dense_to_sparse.py", source, output]
    command += ["--text", tmp_path / "long.txt", "--length", "64", "--refine_steps", "1000000"]
    process = subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True, cwd=ROOT)
    time.sleep(8)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 130
    assert "interrupted" in process.stderr.read()
    assert not output.exists() and leftovers(tmp_path) == []
