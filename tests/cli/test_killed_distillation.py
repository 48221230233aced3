# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from hf_sparse_hopfield.cli import main
from hf_sparse_hopfield.training.resuming import checkpoint_fault

from ..leftovers import leftovers


ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_killed_distillation_goes_on_where_it_was(source, tmp_path):
    """The weights are those of a run that nobody killed, bit for bit."""

    def arguments(output, checkpoints):
        arguments = ["convert", source, tmp_path / output, "--checkpoints", tmp_path / checkpoints]
        arguments += ["--alpha", "1.5", "--text", tmp_path / "text.txt", "--length", "16", "--batches", "4"]
        arguments += "--refine_steps 2 --distill --layer_steps 30 --distill_steps 60 --max_support 0.5".split()
        return list(map(str, arguments))

    command = [sys.executable, "-m", "hf_sparse_hopfield.cli", *arguments("killed", "kept")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL)
    state = tmp_path / "kept" / "checkpoint-50" / "trainer_state.json"  # written last
    while not state.exists() or checkpoint_fault(state.parent):
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    assert process.wait() == -9
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["checkpoint-50"]
    assert not (tmp_path / "killed").exists()

    written = state.stat().st_mtime_ns
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in the other process: sums in another order have other bits
    try:
        assert main(arguments("killed", "kept")) == 0
        assert main(arguments("whole", "others")) == 0
    finally:
        torch.set_num_threads(threads)
    assert state.stat().st_mtime_ns == written  # it was not trained again
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("killed", "whole")]
    assert weights[0] == weights[1]
    reports = [json.loads((tmp_path / name / "distillation.json").read_text()) for name in ("killed", "whole")]
    for name in ("log", "held_out", "support", "changed", "steps", "tokens"):
        assert reports[0][name] == reports[1][name]
    for folder in (tmp_path, tmp_path / "kept"):
        assert leftovers(folder) == []
    assert {path.name for path in (tmp_path / "kept").iterdir()} == {"checkpoint-50", "checkpoint-90"}
