# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Which checkpoint a training script starts from, and the check that it belongs to the same experiment."""

import dataclasses
import json
import logging
import os
import tempfile
from pathlib import Path
from typing import Any

from script_arguments import Arguments

from hf_sparse_hopfield.files import write_json
from hf_sparse_hopfield.training import last_whole_checkpoint


logger = logging.getLogger("examples")

EXPERIMENT_FILE = "_experiment.json"  # files that start with "_" are not pushed; this one holds local paths
# Arguments that may differ when a run is resumed, because they do not affect training.
_MAY_CHANGE = ("cache_dir", "test_file", "max_test_samples", "num_beams", "sparsity_logging_steps")


def starting_point(arguments: Arguments) -> str | None:
    """
    Find the checkpoint to resume from and record the experiment in the output directory.

    `--resume_from_checkpoint` selects the checkpoint: the last complete one in the output directory if there is one (the
    default, or `last`), the last complete one, which must exist (`True`), a given path, or none (`no`). Checkpoints of
    another experiment are an error, except with `no`, which moves them aside.

    Returns:
        `str` or `None`: The checkpoint, or `None` to train from the start.
    """
    training = arguments.training
    folder = Path(training.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    asked = str(training.resume_from_checkpoint or "last")
    experiment, found = experiment_of(arguments), sorted(folder.glob("checkpoint-*"))
    checkpoint = None
    if asked.lower() in ("no", "false"):
        _move_aside(found, folder)
    else:
        if found:
            _refuse_another_experiment(folder, experiment)
        if asked.lower() in ("last", "true"):
            checkpoint = last_whole_checkpoint(folder)
        elif os.path.isdir(asked):
            checkpoint = asked
        if checkpoint is None and asked != "last":
            raise ValueError(
                f"resume_from_checkpoint={asked!r}: there is no such checkpoint (output_dir={training.output_dir!r}). Give "
                "the path of one, 'True' for the last complete one in output_dir, 'last' for that if it exists, or 'no'."
            )
    write_json(folder / EXPERIMENT_FILE, experiment)
    return checkpoint


def experiment_of(arguments: Arguments) -> dict[str, Any]:
    """The model, data, retrieval and seed arguments, which must match for a run to be the same experiment."""
    groups = (arguments.model, arguments.data, arguments.sparse)
    values = {name: value for group in groups for name, value in dataclasses.asdict(group).items()}
    values |= {"seed": arguments.training.seed, "data_seed": arguments.training.data_seed}
    return {name: value for name, value in values.items() if name not in _MAY_CHANGE}


def _move_aside(checkpoints: list[Path], folder: Path) -> None:
    """Trainer would count them as its own when it removes old checkpoints, and the next run would resume from them."""
    if checkpoints:
        aside = Path(tempfile.mkdtemp(prefix="_earlier-", dir=folder))  # "_": not pushed
        for path in checkpoints:
            path.rename(aside / path.name)
        logger.info("moved %d checkpoints of an earlier run to %s", len(checkpoints), aside)


def _refuse_another_experiment(folder: Path, experiment: dict[str, Any]) -> None:
    file = folder / EXPERIMENT_FILE
    if not file.is_file():
        logger.warning("%s has checkpoints but no %s to identify their experiment", folder, EXPERIMENT_FILE)
        return
    before = json.loads(file.read_text(encoding="utf-8"))
    other = [name for name, value in experiment.items() if before.get(name, value) != value]
    if other:
        differences = ", ".join(f"{name}={before[name]!r} there and {experiment[name]!r} here" for name in other)
        raise ValueError(
            f"output_dir={str(folder)!r} has checkpoints of another experiment: {differences}. Give another --output_dir, or "
            "start over with --resume_from_checkpoint no, which moves these checkpoints into a directory of their own."
        )
