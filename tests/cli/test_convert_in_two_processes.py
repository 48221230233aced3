# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`accelerate launch -m hf_sparse_hopfield.cli convert --distill`: both processes distil, one writes."""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest
import torch

from hf_sparse_hopfield.checkpoints import load_model
from hf_sparse_hopfield.cli import main

from ..leftovers import leftovers
from ..training.launch import in_two_processes


pytestmark = pytest.mark.slow


def _arguments(source, folder, output, *more):
    arguments = ["convert", source, folder / output, "--alpha", "1.5", "--text", folder / "text.txt", "--json"]
    return [*map(str, arguments), *"--length 16 --batches 4 --search_batches 2 --refine_steps 2".split(), *more]


def _distilling(source, folder, output):
    more = ["--distill", "--distill_steps", "4", "--layer_steps", "2", "--checkpoints", str(folder / "kept")]
    return _arguments(source, folder, output, *more)


def _start(arguments):
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": root}
    return subprocess.Popen(
        [*in_two_processes(), "-m", "hf_sparse_hopfield.cli", *arguments],
        cwd=root, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def _finish(process):
    try:
        printed, errors = process.communicate(timeout=600)
    finally:
        process.kill()  # if it hangs
    return process.returncode, printed, errors


def test_both_distil_and_one_writes(source, tmp_path, capsys):
    code, printed, errors = _finish(_start(_distilling(source, tmp_path, "together")))
    assert code == 0, errors[-4000:]
    result = json.loads(printed)  # once
    assert result["distillation"]["steps"] == 6 and result["distillation"]["tokens"] % (6 * 2 * 16) == 0
    assert result["difference"] == 0 and leftovers(tmp_path) == []
    assert {path.name for path in (tmp_path / "kept" / "checkpoint-6").glob("rng_state*")} == {
        "rng_state_0.pth",
        "rng_state_1.pth",
    }
    assert load_model(str(tmp_path / "together")).config.sparse_hopfield.alpha == 1.5

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # sums in another order have other bits
    try:
        assert main(_arguments(source, tmp_path, "alone")) == 0
    finally:
        torch.set_num_threads(threads)
    capsys.readouterr()
    calibrated = [json.loads((tmp_path / name / "calibration.json").read_text()) for name in ("together", "alone")]
    assert calibrated[0]["layers"] == calibrated[1]["layers"]

    # Now the output exists: the main process fails at once, and the other one, which does not look, must not wait for it.
    code, printed, errors = _finish(_start(_distilling(source, tmp_path, "together")))
    assert code == 1 and printed == "" and "already exists: choose another name or add --overwrite." in errors


def test_if_writing_fails_both_fail(source, tmp_path):
    process = _start(_distilling(source, tmp_path, "out"))
    while not (tmp_path / "kept").exists():  # the output was looked at before
        assert process.poll() is None, process.communicate()[1][-4000:]
        time.sleep(0.05)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("of somebody else")
    code, printed, errors = _finish(process)
    assert code == 1 and printed == ""
    assert f"error: output {str(tmp_path / 'out')!r} already exists" in errors
    assert "error: the main process failed: its error says why." in errors
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine.txt"] and leftovers(tmp_path) == []
