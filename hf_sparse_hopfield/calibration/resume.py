# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""A file from which an interrupted calibration goes on, and how it knows that it is the same calibration."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..files import new_file


_SAMPLED = 64  # numbers of a weight


class Record:
    """
    What a calibration has reached, kept in a file; kept nowhere if there is none.

    Args:
        path (`str`, *optional*): The file. What is there already is read, and refused if it is of another calibration.
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
            self.state = self._read()
            was = self.state["identity"]
            self._refuse(name for name in identity if was.get(name) != identity[name])

    def _read(self) -> dict[str, Any]:
        try:
            state = torch.load(self.path, weights_only=True)
            if isinstance(state["identity"], dict):
                return state
        except Exception as error:  # a damaged file may fail in any way
            raise ValueError(
                f"resume_from={str(self.path)!r} is damaged or holds something else than the state of a calibration: "
                "remove it, or name another file."
            ) from error
        raise ValueError(
            f"resume_from={str(self.path)!r} comes from another version: remove it, or name another file."
        )

    def _refuse(self, differing: Any) -> None:
        differing = list(differing)
        if differing:
            raise ValueError(
                f"resume_from={str(self.path)!r} comes from a calibration with another model, other data or other "
                f"arguments (not the same: {', '.join(differing)}). Remove it, or name another file."
            )

    def check_first_batch(self, batch: Mapping[str, Any]) -> None:
        """Refuse other data than before. Batches may come only once, so the first one is known when it is there."""
        if self.path is None:
            return
        fingerprint = batch_fingerprint(batch)
        if self.state.setdefault("first_batch", fingerprint) != fingerprint:
            self._refuse(["the first batch"])

    def save(self, **state: Any) -> None:
        """Keep these parts of the state, besides the others."""
        if self.path is None:
            return
        self.state |= state
        with new_file(self.path) as file:
            torch.save(self.state, file)


def weights_fingerprint(model: nn.Module) -> str:
    """Names, shapes and a few numbers of each weight, as one short string. What is learned about retrieval does not count."""
    digest = hashlib.sha256()
    for name, weight in model.state_dict().items():
        if ".sparse_hopfield." in f".{name}":
            continue
        flat = weight.detach().flatten()
        _add(digest, f"{name} {tuple(weight.shape)}", flat[:: max(1, len(flat) // _SAMPLED)])
    return digest.hexdigest()


def batch_fingerprint(batch: Mapping[str, Any]) -> str:
    """All of a batch, as one short string."""
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
