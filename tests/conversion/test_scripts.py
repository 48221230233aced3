# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import json
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conversion import convert_gguf as script_for_gguf
from conversion import convert_hflayers, convert_sparse_to_dense
from hf_sparse_hopfield import checkpoints
from hf_sparse_hopfield.checkpoints import convert_checkpoint
from hf_sparse_hopfield.cli import run_script
from hf_sparse_hopfield.demo.text import TEXT

from ..leftovers import leftovers


ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("script", sorted(path.name for path in (ROOT / "conversion").glob("*.py")))
def test_help_of_the_scripts(script):
    done = subprocess.run(
        [sys.executable, ROOT / "conversion" / script, "--help"], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert "examples:" in done.stdout and "--overwrite" in done.stdout


def test_sparse_to_dense(source, tmp_path, capsys):
    convert_checkpoint(str(source), tmp_path / "sparse")
    argv = [str(tmp_path / "sparse"), str(tmp_path / "again"), "--json"]
    assert run_script(convert_sparse_to_dense, argv) == 0
    assert json.loads(capsys.readouterr().out)["model"] == "LlamaForCausalLM"
    assert run_script(convert_sparse_to_dense, argv) == 1 and "--overwrite" in capsys.readouterr().err


def test_gguf_passes_its_arguments(tmp_path, monkeypatch, capsys):
    def convert_gguf(source, output, *, overwrite, verify, progress):
        assert (source, output, overwrite, verify, progress) == ("model.gguf", "out", True, False, True)
        return {"difference": 0.5}

    monkeypatch.setattr(checkpoints, "convert_gguf", convert_gguf)
    assert run_script(script_for_gguf, ["model.gguf", "out", "--overwrite", "--no_verify", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"output": "out", "difference": 0.5}


def test_a_renaming_needs_two_names(capsys):
    with pytest.raises(SystemExit) as stop:
        run_script(convert_hflayers, ["old.pt", "new", "--rename", "pool."])
    assert stop.value.code == 2 and "must be OLD=NEW, got 'pool.'" in capsys.readouterr().err


def test_a_full_disk_leaves_nothing(source, tmp_path):
    output = tmp_path / "out"
    command = [sys.executable, ROOT / "conversion" / "convert_dense_to_sparse.py", source, output]

    def limited():  # a limit on the size of files stops writing just as a full disk does, in the middle of the weights
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))

    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, cwd=ROOT, preexec_fn=limited
    )
    assert done.returncode == 1
    assert (
        "error: " in done.stderr
        and "larger file than the system allows" in done.stderr
        and "Traceback" not in done.stderr
    )
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
