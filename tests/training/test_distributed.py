# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Training in several processes, and after a crash: real processes, started with `accelerate launch`, over gloo."""

import copy
import signal

import pytest

from hf_sparse_hopfield.training import last_whole_checkpoint
from tests.roads.table import road

from . import launch


LEARNED = {"learn_alpha": True, "learn_beta": True}
SAVING = {"save_strategy": "steps", "save_steps": 3}
EXACT = ("weights", "optimizer", "scheduler", "random", "settings", "losses")

QUICK = [
    {"name": "plain", "model": "llama", "sparse": {**LEARNED, "hopfield_learning_rate": 0.02}},
    {"name": "accumulated", "model": "bert", "sparse": LEARNED, "training": {"gradient_accumulation_steps": 2}},
    {"name": "evaluated", "model": "bert", "sparse": LEARNED, "evaluate": True},
    {"name": "recomputed", "model": "llama", "sparse": LEARNED, "training": {"gradient_checkpointing": True}},
    {"name": "bfloat16", "model": "llama", "sparse": LEARNED, "training": {"bf16": True}},
    {"name": "half_dense", "model": "llama", "layers": [1], "sparse": LEARNED},
    {
        "name": "from_softmax",
        "model": "bert",
        "sparse": {"learn_beta": True, "alpha_schedule": "step", "schedule_steps": 3, "sparsity_logging_steps": 2},
    },
    {"name": "calibrated", "model": "bert", "sparse": {"calibration_batches": 2}},
    {"name": "layers", "model": "layers", "sparse": {**LEARNED, "sparsity_logging_steps": 3}},
    {
        "name": "full",
        "model": "bert",
        "dropout": 0.1,
        "sparse": {"learn_beta": True, "alpha_schedule": "cosine"},
        "training": SAVING,
    },
]
RESUMED = {**QUICK[-1], "name": "resumed", "checkpoints_of": "full", "resume": "checkpoint-3"}

SLOW = [
    {"name": "softmax", "model": "llama", "sparse": {"alpha": 1.0, "learn_beta": True}},
    {"name": "schedule", "model": "bert", "sparse": {"alpha_schedule": "linear", "learn_beta": True}},
    {"name": "several_steps", "model": "llama", "sparse": {**LEARNED, "steps": 3, "tolerance": 1e-3}},
    {
        "name": "bfloat16_recomputed_accumulated",
        "model": "bert",
        "sparse": LEARNED,
        "training": {"bf16": True, "gradient_checkpointing": True, "gradient_accumulation_steps": 2},
    },
    {"name": "compiled", "model": "llama", "sparse": LEARNED, "training": {"torch_compile": True}},
    {
        "name": "compiled_schedule",
        "model": "llama",
        "sparse": {"learn_beta": True, "alpha_schedule": "linear", "sparsity_logging_steps": 2},
        "training": {"torch_compile": True},
    },
    {"name": "with_dropout", "model": "llama", "dropout": 0.1, "sparse": LEARNED, "training": SAVING},
]


def in_processes(cases: list[dict], processes: int) -> list[dict]:
    """The cases with a global batch of 8 samples a step."""
    cases = copy.deepcopy(cases)
    for case in cases:
        training = case.setdefault("training", {})
        training["per_device_train_batch_size"] = 8 // processes // training.get("gradient_accumulation_steps", 1)
    return cases


def check_equal(case: dict, one: dict, both: list[dict]) -> None:
    """Two processes did what one did."""
    first, second = both
    assert first["world_size"] == 2 and one["world_size"] == 1
    for key in EXACT:
        if key not in ("random", "losses"):  # each process has its own random numbers; only the first logs
            assert first[key] == second[key], key
    if case.get("dropout"):
        return
    bfloat16 = case.get("training", {}).get("bf16", False)
    tolerance = 5e-3 if bfloat16 else 5e-6
    assert len(one["losses"]) == 6
    for step, loss in one["losses"].items():
        assert first["losses"][step] == pytest.approx(loss, rel=tolerance), (case["name"], step)
    assert first["evaluated"] == pytest.approx(one["evaluated"], rel=tolerance)
    assert first["settings"] == one["settings"]
    assert first["sparsity"].keys() == one["sparsity"].keys()
    for step, metrics in one["sparsity"].items():
        assert first["sparsity"][step] == pytest.approx(metrics, rel=1e-2, abs=2e-2)


def compare(cases: list[dict], folder) -> None:
    (folder / "one").mkdir()
    (folder / "two").mkdir()
    one = launch.here(in_processes(cases, 1), folder / "one")
    two = launch.together(in_processes(cases, 2), folder / "two")
    for case in cases:
        name = case["name"]
        check_equal(case, one[name], [results[name] for results in two])
    return one, two


@road("DDP, `accelerate launch` with two processes", "equal")
def test_two_processes_train_like_one_and_resume_exactly(tmp_path):
    """The Trainer trains, evaluates, saves and resumes in two processes and in one."""
    one, two = compare([*QUICK, RESUMED], tmp_path)
    for results in (one, *two):
        for key in EXACT:
            assert results["resumed"][key] == results["full"][key], key
    assert two[0]["plain"]["wrapper"] == "DistributedDataParallel"
    # one checkpoint for both processes, whole, with the alpha of its step
    assert two[0]["full"]["checkpoints"] == ["checkpoint-3", "checkpoint-6"]
    assert last_whole_checkpoint(tmp_path / "two" / "full").endswith("checkpoint-6")
    assert len(list((tmp_path / "two" / "full" / "checkpoint-6").glob("*.safetensors"))) == 1
    assert two[0]["plain"]["wrapper"] != one["plain"]["wrapper"]
    assert len(one["calibrated"]["settings"]["configs"][0]["overrides"]) == 2
    # a training that does nothing would pass all of the above
    assert one["plain"]["losses"]["1"] != one["plain"]["losses"]["6"]


@pytest.mark.slow
def test_two_processes_train_like_one_in_every_mode(tmp_path):
    compare(SLOW, tmp_path)


@pytest.mark.slow
def test_fresh_processes_resume_exactly(tmp_path):
    case = in_processes([{**SLOW[-1], "name": "run"}], 2)[0]
    full = launch.together([case], tmp_path)
    resumed = launch.together([{**case, "resume": "checkpoint-3"}], tmp_path)
    for before, after in zip(full, resumed, strict=True):
        assert [before["run"][key] for key in EXACT] == [after["run"][key] for key in EXACT]


@pytest.mark.slow
@road("FSDP2 of accelerate, `accelerate launch` with two processes", "equal")
def test_fsdp2_trains_like_one_process_and_resumes_exactly(tmp_path):
    """The Trainer trains, saves, loses a half-written checkpoint and resumes, in two processes and in one."""
    config = tmp_path / "fsdp.yaml"
    text = (launch.CONFIGS / "fsdp.yaml").read_text()
    for old, new in {
        "use_cpu: false": "use_cpu: true",
        "mixed_precision: bf16": 'mixed_precision: "no"',
        "FULL_STATE_DICT #": "SHARDED_STATE_DICT #",  # the other kind fails on CPUs, with dense models too
    }.items():
        assert old in text
        text = text.replace(old, new)
    config.write_text(text)
    sparse = {**LEARNED, "hopfield_learning_rate": 0.02, "sparsity_logging_steps": 3}
    case = {"name": "sharded", "model": "llama", "sparse": sparse}
    saving = {**case, "training": SAVING}
    resumed = {**saving, "name": "resumed", "checkpoints_of": "sharded", "resume": True}
    (tmp_path / "one").mkdir()
    one = launch.here(in_processes([case], 1), tmp_path / "one")["sharded"]
    two = launch.together(in_processes([saving], 2), tmp_path, config, "--fsdp_on_cpus")
    assert two[0]["sharded"]["wrapper"].startswith("FSDP")
    check_equal(case, one, [results["sharded"] for results in two])
    for file in (tmp_path / "sharded" / "checkpoint-6").rglob("*"):  # a kill while the last checkpoint was written
        if file.name in (".metadata", "trainer_state.json"):
            file.unlink()
    again = launch.together(in_processes([resumed], 2), tmp_path, config, "--fsdp_on_cpus")
    for before, after in zip(two, again, strict=True):
        assert [before["sharded"][key] for key in EXACT] == [after["resumed"][key] for key in EXACT]


def test_after_a_kill_training_goes_on_from_the_last_whole_checkpoint(tmp_path, caplog):
    case = {
        "name": "run",
        "model": "bert",
        "dropout": 0.1,
        "sparse": {"alpha_schedule": "linear", "learn_beta": True},
        "training": {"save_strategy": "steps", "save_steps": 2},
    }
    killed = launch.alone([{**case, "kill_at": 4}], tmp_path)
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-3000:]
    assert not (tmp_path / "run.0.json").exists()
    assert (
        tmp_path / "run" / "checkpoint-4" / "model.safetensors"
    ).exists()  # transformers would resume from this one
    assert last_whole_checkpoint(tmp_path / "run").endswith("checkpoint-2")
    assert "checkpoint-4 is not a whole checkpoint" in caplog.text

    resumed = launch.here([{**case, "resume": True}], tmp_path)["run"]
    uninterrupted = launch.here([{**case, "name": "uninterrupted"}], tmp_path)["uninterrupted"]
    assert [resumed[key] for key in EXACT] == [uninterrupted[key] for key in EXACT]
    assert last_whole_checkpoint(tmp_path / "run").endswith("checkpoint-6")
