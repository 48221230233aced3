# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""A memory in one safetensors file."""

import os
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialize
from torch import Tensor

from ...files import new_file
from .folder import FORMAT


VERSION = "1"
SETTINGS = ("alpha", "beta", "normalize")


def save_file(path: str | os.PathLike, settings: dict[str, Any], patterns: Tensor, rows: Tensor) -> None:
    """
    Write a file that appears complete or not at all.

    Args:
        path (`str` or `os.PathLike`): The file.
        settings (`dict[str, Any]`): The `SETTINGS` of the memory.
        patterns, rows (`torch.Tensor`): Its patterns and their names.
    """
    metadata = {"format": FORMAT, "version": VERSION} | {name: repr(value) for name, value in settings.items()}
    tensors = {"patterns": patterns.detach().cpu().contiguous(), "rows": rows.cpu().contiguous()}
    content = serialize(tensors, metadata=metadata)
    with new_file(path) as file:
        file.write_bytes(content)


def read_file(path: str | os.PathLike) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the settings of a saved memory."""
    if not os.path.isfile(path):
        raise FileNotFoundError(f"path={os.fspath(path)!r} is not a file.")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise ValueError(
                    f"path={os.fspath(path)!r} is not a HopfieldMemory: its format is {metadata.get('format')!r}, "
                    f"not {FORMAT!r}. Build one from its tensors with HopfieldMemory(patterns)."
                )
            if metadata.get("version") != VERSION:
                raise ValueError(
                    f"path={os.fspath(path)!r} has version {metadata.get('version')!r} of the format; this "
                    f"package reads version {VERSION!r}. Upgrade hf-sparse-hopfield."
                )
            tensors = {"patterns": file.get_tensor("patterns")}
            if "rows" in file.keys():  # noqa: SIM118  (it is no dict)
                tensors["rows"] = file.get_tensor("rows")
    except SafetensorError as error:
        raise ValueError(f"path={os.fspath(path)!r} is damaged or not a safetensors file: {error}") from error
    return tensors, parsed_settings(path, metadata)


def parsed_settings(path: str | os.PathLike, metadata: dict[str, str]) -> dict[str, Any]:
    """The settings of a memory, from their texts."""
    try:
        alpha, beta = float(metadata["alpha"]), float(metadata["beta"])
        normalize = {"True": True, "False": False}[metadata["normalize"]]
    except (KeyError, ValueError) as error:
        raise ValueError(f"path={os.fspath(path)!r} has damaged metadata {metadata!r}: {error!r}") from error
    return {"alpha": alpha, "beta": beta, "normalize": normalize}
