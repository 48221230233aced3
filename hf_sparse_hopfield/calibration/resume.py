# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The file from which an interrupted calibration resumes, and the check that it belongs to the same calibration."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..files import new_file
from ..processes import is_main_process


_SAMPLED = 64  # numbers of a weight that go into its fingerprint


class Record:
    """
    The state of a calibration, kept in a file.

    Args:
        path (`str`, *optional*):
            The file. If it exists, it is read, and refused if it belongs to another calibration. Without a file, nothing
            is kept.
        identity (`dict[str, str]`): What tells one calibration from another, by name.
    """

    def __init__(self, path: str | os.PathLike | None, identity: dict[str, str]) -> None:
        self.path = None if path is None else Path(path)
        self.state: dict[str, Any] = {"identity": identity}
        if self.path is None:
            return
        if not self.path.absolute().parent.is_dir():
            raise FileNotFoundError(f"resume_from={str(path)!r} cannot be written: its directory does not exist.")
        if self.path.exists():
            self.state = _read(self.path)
            was = self.state["identity"]
            self._refuse([name for name in identity if was.get(name) != identity[name]])

    def _refuse(self, differing: list[str]) -> None:
        if differing:
            raise ValueError(
                f"resume_from={str(self.path)!r} comes from a calibration with another model, other data or other "
                f"arguments (not the same: {', '.join(differing)}). Remove it, or name another file."
            )

    def check_first_batch(self, batch: Mapping[str, Any]) -> None:
        """Refuse data whose first batch differs. An iterator cannot be read ahead."""
        if self.path is None:
            return
        fingerprint = batch_fingerprint(batch)
        if self.state.setdefault("first_batch", fingerprint) != fingerprint:
            self._refuse(["the first batch"])

    def save(self, **state: Any) -> None:
        """Update these parts of the state, and write it. Of several processes, which do the same, only the main one writes."""
        if self.path is None:
            return
        self.state |= state
        if not is_main_process():
            return
        with new_file(self.path) as file:
            torch.save(self.state, file)


def _read(path: Path) -> dict[str, Any]:
    try:
        state = torch.load(path, weights_only=True)
        if isinstance(state["identity"], dict):
            return state
    except Exception as error:  # a damaged file may fail in any way
        raise ValueError(
            f"resume_from={str(path)!r} is damaged or holds something other than the state of a calibration: remove it, or "
            "name another file."
        ) from error
    raise ValueError(f"resume_from={str(path)!r} was written by another version: remove it, or name another file.")


def weights_fingerprint(model: nn.Module) -> str:
    """Hash the name, shape and a few numbers of each weight. Learned alpha and beta do not count."""
    digest = hashlib.sha256()
    for name, weight in model.state_dict().items():
        if ".sparse_hopfield." in f".{name}":
            continue
        flat = weight.detach().flatten()
        _add(digest, f"{name} {tuple(weight.shape)}", flat[:: max(1, len(flat) // _SAMPLED)])
    return digest.hexdigest()


def batch_fingerprint(batch: Mapping[str, Any]) -> str:
    """Hash a whole batch."""
    digest = hashlib.sha256()
    for name, value in batch.items():
        if isinstance(value, torch.Tensor):
            _add(digest, f"{name} {tuple(value.shape)}", value.detach().flatten())
        else:
            digest.update(f"{name} {value!r}".encode())
    return digest.hexdigest()


def _add(digest: Any, title: str, numbers: torch.Tensor) -> None:
    digest.update(f"{title} {numbers.dtype}".encode())
    digest.update(numbers.cpu().contiguous().view(torch.uint8).numpy().tobytes())
