# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import json
import os
import subprocess
from pathlib import Path

import pytest
import torch

from ..training.launch import in_two_processes
from . import run_distill


@pytest.mark.parametrize("rank", [0, 2])
def test_two_processes_learn_what_one_does_with_twice_the_batches(tmp_path, rank):
    """Both processes end with the same model, which is that of one process with two batches in a step."""
    if rank:
        pytest.importorskip("peft")
    script = Path(run_distill.__file__)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(script.parents[2])}
    finished = subprocess.run(
        [*in_two_processes(), str(script), str(tmp_path), str(rank)],
        env=environment, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr[-4000:]
    first, second = (json.loads((tmp_path / f"{process}.json").read_text()) for process in range(2))
    assert first == second
    alone = run_distill.main(tmp_path, rank, accumulated=2)
    assert first["tokens"] == alone["tokens"] == 6 * 2 * 24
    for name, weight in alone["weights"].items():
        torch.testing.assert_close(torch.tensor(first["weights"][name]), torch.tensor(weight), atol=2e-4, rtol=1e-2)
    assert first["divergence"] == pytest.approx(alone["divergence"], rel=0.1)
