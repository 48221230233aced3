# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""A memory in a folder, saved piece by piece.

`memory.json` names the files that belong to the memory: for each segment one with its patterns, the names of their rows and their
int8 copy, and one with the marks of removed patterns if there are any. Files are never changed. A save writes new ones, then
replaces `memory.json`, then removes the files that no longer belong to it: whenever it is interrupted, the memory of the last
complete save is there. Loading maps the files into memory, so that only what a search reads is read from disk.
"""

import json
import os
import re
import shutil
import uuid
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ...backends import KeyScreen
from ...files import locked, write_json
from .segments import Segment


FORMAT = "hf_sparse_hopfield.HopfieldMemory"
VERSION = "2"
MANIFEST = "memory.json"
_FILE_NAME = re.compile(r"(patterns|removed)-[0-9a-f]{32}\.safetensors")
_UNFINISHED = re.compile(r"\.tmp[0-9A-Za-z]{6}")  # what safetensors writes before it has the name of a file
_SCREEN = ("codes", "scales", "bounds")


def is_folder(path: str | os.PathLike) -> bool:
    """Whether a memory is saved to `path` as a folder: any name but that of a file, or one that ends in `.safetensors`."""
    return not os.path.isfile(path) and not os.fspath(path).endswith(".safetensors")


def save_folder(path: str | os.PathLike, settings: dict[str, Any], segments: list[Segment], state: str | None) -> str:
    """
    Write what is not there yet.

    Args:
        path (`str` or `os.PathLike`): The folder.
        settings (`dict[str, Any]`): What else to write into `memory.json`.
        segments (`list[Segment]`): The patterns. Afterwards they are mapped from their files.
        state (`str`, *optional*):
            What the last save to this folder, or the load from it, returned. Files that segments name are there then. `None`:
            there is nothing yet.

    Returns:
        `str`: Identifies what the folder holds now.
    """
    folder = Path(os.path.realpath(path))
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"path={os.fspath(path)!r} is a file; it must be a folder.")
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder) as mine:
        if not mine and os.name == "posix":
            raise BlockingIOError(f"path={os.fspath(path)!r}: another process saves a memory there at this moment.")
        _refuse_others(folder, state)
        written: list[Path] = []
        try:
            entries = [_write_segment(folder, segment, state is not None, written) for segment in segments]
            state = uuid.uuid4().hex
            write_json(
                folder / MANIFEST,
                {"format": FORMAT, "version": VERSION, "state": state, **settings, "segments": entries},
            )
        except BaseException:
            for file in written:
                file.unlink(missing_ok=True)
            raise
        for segment, entry in zip(segments, entries, strict=True):
            if segment.patterns.device.type == "cpu" and folder / entry["file"] in written:
                segment.map_from(*_mapped(folder / entry["file"], segment.patterns.dtype))
            segment.file, segment.removed_file = entry["file"], entry["removed"]
        _remove_unused(folder, entries)
    return state


def _refuse_others(folder: Path, state: str | None) -> None:
    """Raise if the folder holds something else than the memory that is saved."""
    if (folder / MANIFEST).exists():
        if state is None or read_manifest(folder)["state"] != state:
            raise FileExistsError(
                f"path={str(folder)!r} holds another memory, or one that has been saved again since this one was loaded: choose "
                "another name, or load it and add to it."
            )
        return
    foreign = sorted(entry.name for entry in folder.iterdir() if not _FILE_NAME.fullmatch(entry.name))
    foreign = [name for name in foreign if not name.startswith(".")]
    if foreign:
        raise FileExistsError(
            f"path={str(folder)!r} holds other files ({', '.join(foreign[:5])}): choose another name."
        )


def _write_segment(folder: Path, segment: Segment, is_there: bool, written: list[Path]) -> dict[str, Any]:
    """The entry of a segment in `memory.json`, after the files that it names are written."""
    file, removed = (segment.file, segment.removed_file) if is_there else (None, None)
    if file is None:
        tensors = {"patterns": segment.patterns, "rows": segment.rows}
        screen = segment.screen
        if screen is not None:
            screen = screen.trimmed()
            tensors |= {name: getattr(screen, name) for name in _SCREEN}
        file = _write_tensors(folder, "patterns", tensors, written)
    if segment.removed is not None and removed is None:
        removed = _write_tensors(folder, "removed", {"removed": segment.removed}, written)
    return {"file": file, "patterns": len(segment.rows), "removed": removed}


def _write_tensors(folder: Path, kind: str, tensors: dict[str, Tensor], written: list[Path]) -> str:
    """Write a file of a new name. It counts for nothing until `memory.json` names it."""
    path = folder / f"{kind}-{uuid.uuid4().hex}.safetensors"
    written.append(path)
    save_file({key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}, path)
    with path.open("rb+") as file:
        os.fsync(file.fileno())
    return path.name


def _remove_unused(folder: Path, entries: Iterable[dict[str, Any]]) -> None:
    used = {entry[kind] for entry in entries for kind in ("file", "removed")}
    for entry in folder.iterdir():
        unused = _FILE_NAME.fullmatch(entry.name) and entry.name not in used
        if unused or _UNFINISHED.fullmatch(entry.name):
            with suppress(OSError):  # still mapped, where the system does not allow that
                entry.unlink()
        elif entry.name.startswith(f".{MANIFEST}."):  # of a process that was killed
            shutil.rmtree(entry, ignore_errors=True)


def read_manifest(folder: Path) -> dict[str, Any]:
    """
    Read `memory.json`.

    Args:
        folder (`Path`): The folder of a memory.

    Returns:
        `dict[str, Any]`: Its content, with the entries that [`save_folder`] writes.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise FileNotFoundError(f"path={str(folder)!r} is no HopfieldMemory: it has no {MANIFEST}.")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{str(path)!r} is damaged: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ValueError(f"{str(path)!r} does not describe a HopfieldMemory.")
    if manifest.get("version") != VERSION:
        raise ValueError(
            f"{str(path)!r} has version {manifest.get('version')!r} of the format; this package reads version "
            f"{VERSION!r}. Upgrade hf-sparse-hopfield."
        )
    segments: Any = manifest.get("segments")
    right = isinstance(segments, list) and isinstance(manifest.get("state"), str)
    for entry in segments if right else ():
        right = right and isinstance(entry, dict) and isinstance(entry.get("patterns"), int)
        right = right and all(
            isinstance(name, str) and _FILE_NAME.fullmatch(name)
            for name in (entry.get("file"), entry.get("removed") or entry.get("file"))
        )
    if not right:
        raise ValueError(f"{str(path)!r} is damaged: its list of segments is not one that this package writes.")
    return manifest


def load_segments(folder: Path, manifest: dict[str, Any], dtype: torch.dtype, dimension: int) -> list[Segment]:
    """
    Map the segments of a memory from their files.

    Args:
        folder (`Path`): The folder of the memory.
        manifest (`dict[str, Any]`): From [`read_manifest`].
        dtype (`torch.dtype`), dimension (`int`): Of the patterns.
    """
    segments = []
    for entry in manifest["segments"]:
        patterns, rows, screen = _mapped(folder / entry["file"], dtype)
        if patterns.shape != (entry["patterns"], dimension):
            raise ValueError(
                f"{entry['file']!r} of path={str(folder)!r} has patterns of shape {tuple(patterns.shape)}, but {MANIFEST} says "
                f"{(entry['patterns'], dimension)}."
            )
        removed = None
        if entry["removed"] is not None:
            removed = _read(folder / entry["removed"], ("removed",))["removed"]
            if removed.dtype != torch.bool or removed.shape != rows.shape:
                raise ValueError(f"{entry['removed']!r} of path={str(folder)!r} is damaged.")
        segment = Segment(patterns, rows, removed, screen)
        segment.file, segment.removed_file = entry["file"], entry["removed"]
        segments.append(segment)
    return segments


def _mapped(path: Path, dtype: torch.dtype) -> tuple[Tensor, Tensor, KeyScreen | None]:
    tensors = _read(path, ("patterns", "rows"))
    patterns, rows = tensors["patterns"], tensors["rows"]
    if patterns.ndim != 2 or patterns.dtype != dtype or rows.dtype != torch.long or rows.shape != patterns.shape[:1]:
        raise ValueError(f"{str(path)!r} is damaged: its tensors do not fit together.")
    if not all(name in tensors for name in _SCREEN):
        return patterns, rows, None
    try:
        screen = KeyScreen.from_tensors(
            tensors["codes"], tensors["scales"], tensors["bounds"], patterns.shape[1], len(rows)
        )
    except ValueError as error:
        raise ValueError(f"{str(path)!r} is damaged: {error}") from error
    return patterns, rows, screen


def _read(path: Path, needed: tuple[str, ...]) -> dict[str, Tensor]:
    """The tensors of a file, mapped into memory."""
    if not path.is_file():
        raise FileNotFoundError(f"{str(path)!r} is missing: a part of the memory is lost.")
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (it is no dict)
    except SafetensorError as error:
        raise ValueError(f"{str(path)!r} is damaged or not a safetensors file: {error}") from error
    for name in needed:
        if name not in tensors:
            raise ValueError(f"{str(path)!r} is damaged: it has no tensor {name!r}.")
    return tensors
