# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import json
import shutil
from pathlib import Path

import pytest
import torch

from hf_sparse_hopfield.training import last_whole_checkpoint
from hf_sparse_hopfield.training.resuming import checkpoint_fault

from .run_cases import run


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A directory with the checkpoints 2 and 4 of a real training."""
    folder = tmp_path_factory.mktemp("trained")
    case = {"name": "run", "model": "layers", "training": {"max_steps": 4, "save_strategy": "steps", "save_steps": 2}}
    run(case, folder)
    return folder / "run"


@pytest.fixture
def output(trained, tmp_path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "output"))


def cut(file: Path, share: float) -> None:
    file.write_bytes(file.read_bytes()[: int(file.stat().st_size * share)])


def test_the_newest_whole_checkpoint_is_found(output, caplog):
    assert last_whole_checkpoint(output) == str(output / "checkpoint-4")
    (output / "checkpoint-10").mkdir()  # killed before anything was written
    (output / "checkpoint-old").mkdir()
    assert last_whole_checkpoint(str(output)) == str(output / "checkpoint-4")
    assert "checkpoint-10 is not a whole checkpoint and is skipped: trainer_state.json" in caplog.text
    shutil.rmtree(output / "checkpoint-4")
    shutil.rmtree(output / "checkpoint-2")
    assert last_whole_checkpoint(output) is None
    assert last_whole_checkpoint(output / "nowhere") is None


@pytest.mark.parametrize("share", [0, 0.001, 0.5, 0.99])
@pytest.mark.parametrize(
    "name", ["model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json", "config.json"]
)
def test_a_file_that_was_cut_off_is_noticed(output, name, share):
    cut(output / "checkpoint-4" / name, share)
    assert checkpoint_fault(output / "checkpoint-4").startswith(name)
    assert last_whole_checkpoint(output) == str(output / "checkpoint-2")


@pytest.mark.parametrize(
    "name", ["model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"]
)
def test_a_file_that_is_not_there_is_noticed(output, name):
    (output / "checkpoint-4" / name).unlink()
    assert "missing" in checkpoint_fault(output / "checkpoint-4")


def test_a_state_of_another_step_is_noticed(output):
    shutil.copy(output / "checkpoint-2" / "trainer_state.json", output / "checkpoint-4" / "trainer_state.json")
    assert checkpoint_fault(output / "checkpoint-4") == "trainer_state.json has global_step=2"


def test_several_processes_and_shards(output):
    checkpoint = output / "checkpoint-4"
    random = (checkpoint / "rng_state.pth").read_bytes()
    (checkpoint / "rng_state.pth").unlink()
    (checkpoint / "rng_state_0.pth").write_bytes(random)
    assert "random states are missing" in checkpoint_fault(checkpoint)  # the other process was killed first
    (checkpoint / "rng_state_1.pth").write_bytes(random)
    assert checkpoint_fault(checkpoint) is None

    weights = checkpoint / "model.safetensors"
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (checkpoint / "model.safetensors.index.json").write_text(json.dumps(index))
    shutil.copy(weights, checkpoint / "model-00001-of-00002.safetensors")
    weights.unlink()
    assert checkpoint_fault(checkpoint).startswith("model-00002-of-00002.safetensors, which")
    shutil.copy(checkpoint / "model-00001-of-00002.safetensors", checkpoint / "model-00002-of-00002.safetensors")
    assert checkpoint_fault(checkpoint) is None


def test_sharded_states_and_deepspeed(output):
    checkpoint = output / "checkpoint-4"
    (checkpoint / "model.safetensors").unlink()
    for name in ("pytorch_model_fsdp_0", "optimizer_0"):
        (checkpoint / name).mkdir()
        (checkpoint / name / "__0_0.distcp").write_bytes(b"...")
        assert checkpoint_fault(checkpoint) == f"{name}/.metadata is missing"
        (checkpoint / name / ".metadata").write_bytes(b"...")
    (checkpoint / "optimizer.pt").unlink()
    assert checkpoint_fault(checkpoint) is None

    deepspeed = output / "checkpoint-2"
    for name in ("model.safetensors", "optimizer.pt", "scheduler.pt"):
        (deepspeed / name).unlink()
    (deepspeed / "latest").write_text("global_step2")
    assert "'latest'" in checkpoint_fault(deepspeed)
    (deepspeed / "global_step2").mkdir()
    torch.save({}, deepspeed / "global_step2" / "mp_rank_00_model_states.pt")
    assert checkpoint_fault(deepspeed) is None
    cut(deepspeed / "global_step2" / "mp_rank_00_model_states.pt", 0.5)
    assert "mp_rank_00_model_states.pt is cut off" in checkpoint_fault(deepspeed)
