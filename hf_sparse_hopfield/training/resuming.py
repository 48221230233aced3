# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`last_whole_checkpoint`: the checkpoint to resume from. Imports neither torch nor transformers.

transformers writes a checkpoint in place, file by file, `trainer_state.json` last. A process that is killed meanwhile leaves
a directory that looks like a checkpoint, and `resume_from_checkpoint=True` would use it.
"""

import json
import logging
import os
import re
import struct
import zipfile
from pathlib import Path


logger = logging.getLogger(__name__)

_NAME = re.compile(r"checkpoint-(\d+)")
_RNG = re.compile(r"rng_state_(\d+)\.pth")
_STATE = "trainer_state.json"


def last_whole_checkpoint(output_dir: str | os.PathLike) -> str | None:
    """
    Find the newest complete checkpoint of a training run.

    Args:
        output_dir (`str`): The `output_dir` of the `TrainingArguments`.

    Returns:
        `str` or `None`: Its path, for `trainer.train(resume_from_checkpoint=...)`; `None` if there is none. A warning names
        each incomplete checkpoint and the reason; they are not removed.

    Example:

    ```python
    >>> from hf_sparse_hopfield.training import last_whole_checkpoint
    >>> last_whole_checkpoint("no-such-directory") is None
    True

    ```
    """
    folder = Path(output_dir)
    numbered = [(_number(_NAME, path.name), path) for path in (folder.iterdir() if folder.is_dir() else ())]
    found = [(step, path) for step, path in numbered if step is not None and path.is_dir()]
    for _, path in sorted(found, reverse=True):
        fault = checkpoint_fault(path)
        if fault is None:
            return str(path)
        logger.warning("%s is not a whole checkpoint and is skipped: %s.", path, fault)
    return None


def _number(pattern: re.Pattern[str], name: str) -> int | None:
    match = pattern.fullmatch(name)
    return None if match is None else int(match[1])


def checkpoint_fault(path: str | os.PathLike) -> str | None:
    """
    Describe what is wrong with a checkpoint; `None` if training can resume from it.

    Args:
        path (`str`): A directory `checkpoint-N`.
    """
    path = Path(path)
    files = [file for file in sorted(path.rglob("*")) if file.is_file()]
    names = {file.relative_to(path).as_posix() for file in files}
    if _STATE not in names:
        return f"{_STATE}, which is written last, is missing"
    for file in files:
        fault = _file_fault(file)
        if fault is not None:
            return f"{file.relative_to(path).as_posix()} {fault}"
    step = json.loads((path / _STATE).read_text(encoding="utf-8")).get("global_step")
    if step != _number(_NAME, path.name):
        return f"{_STATE} has global_step={step}"
    return _missing(path, names)


def _missing(path: Path, names: set[str]) -> str | None:
    tops = {name.partition("/")[0] for name in names}
    sharded = [name for name in names if name.endswith(".index.json")]
    for index in sharded:
        shards = set(json.loads((path / index).read_text(encoding="utf-8"))["weight_map"].values())
        absent = sorted(shards - names)
        if absent:
            return f"{absent[0]}, which {index} names, is missing"
    deepspeed = "latest" in names  # this file names the directory with everything else
    if deepspeed and (path / "latest").read_text(encoding="utf-8").strip() not in tops:
        return "the directory that the file 'latest' names is missing"
    for directory in tops:  # torch's distributed checkpoints, which write .metadata last
        if (path / directory).is_dir() and any(path.glob(f"{directory}/*.distcp")):
            if f"{directory}/.metadata" not in names:
                return f"{directory}/.metadata is missing"
    weights = any(
        name.startswith(("model", "pytorch_model", "adapter_model")) and not name.endswith(".json") for name in names
    )
    if not weights and not deepspeed:
        return "the weights are missing"
    if not deepspeed and not any(name.startswith("optimizer") for name in tops):
        return "the state of the optimizer is missing (was it saved with save_only_model=True?)"
    if not deepspeed and "scheduler.pt" not in names:
        return "scheduler.pt is missing"
    ranks = sorted(rank for rank in (_number(_RNG, name) for name in names) if rank is not None)
    # one process writes rng_state.pth, several write one file each
    if "rng_state.pth" not in names and (len(ranks) < 2 or ranks != list(range(len(ranks)))):
        return f"random states are missing (only those of the processes {ranks} are there)"
    return None


def _file_fault(file: Path) -> str | None:
    if file.suffix == ".json":
        try:
            json.loads(file.read_text(encoding="utf-8"))
        except ValueError:
            return "is cut off or not JSON"
    elif file.suffix == ".safetensors":
        return _safetensors_fault(file)
    elif file.suffix in (".pt", ".pth", ".bin") and not zipfile.is_zipfile(file):
        return "is cut off or not a torch file"  # the directory of a zip file is at its end
    return None


def _safetensors_fault(file: Path) -> str | None:
    size = file.stat().st_size
    with file.open("rb") as stream:
        start = stream.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else size
        if length > size - 8:
            return "is cut off in its header"
        try:
            header = json.loads(stream.read(length))
        except ValueError:
            return "has no valid header"
    ends = [tensor["data_offsets"][1] for name, tensor in header.items() if name != "__metadata__"]
    if size != 8 + length + max(ends, default=0):
        return f"has {size} bytes and should have {8 + length + max(ends, default=0)}"
    return None
