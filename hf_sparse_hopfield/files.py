# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Files and directories that appear complete or not at all.

Everything is written in a hidden scratch directory beside the target and then renamed. The scratch directory is locked while
its process lives, so that the next run can tell what a killed process left behind and remove it.
"""

import glob
import json
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


try:
    import fcntl
except ImportError:  # Windows has no flock: leftovers of a killed process stay
    fcntl = None  # type: ignore[assignment]


_OLD = ".old"  # in the scratch directory: the directory that is being replaced


@contextmanager
def new_file(path: str | os.PathLike) -> Iterator[Path]:
    """
    Write a file that appears under its name only when the block succeeds. An existing file is replaced and its permissions
    are kept; missing parent directories are created. A device or a pipe, such as `/dev/stdout`, is written to directly.

    Args:
        path (`str` or `os.PathLike`): The file. A symbolic link stays, and the file it points to is replaced.

    Yields:
        `Path`: Where to write: a file of the same name in a directory beside it, which is removed at the end.

    Example:

    ```python
    >>> from hf_sparse_hopfield.files import new_file

    >>> with new_file("notes.txt") as file:
    ...     _ = file.write_text("complete")
    >>> open("notes.txt").read()
    'complete'

    ```
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(f"{str(path)!r} is a directory; it must be a file.")
    if _is_special(path):
        yield Path(path)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with _scratch_directory(target) as scratch:
        file = scratch / target.name
        yield file
        with file.open("rb+") as written:
            os.fsync(written.fileno())  # a rename may reach the disk before the content does
        if target.exists():
            shutil.copymode(target, file)
        os.replace(file, target)


def _is_special(path: str | os.PathLike) -> bool:
    """Whether a path is a device or a pipe, or leads to a file that this process has open, as `/dev/stdout` does."""
    if os.path.abspath(path).startswith(("/dev/stdout", "/dev/stderr", "/dev/fd/", "/proc/")):
        return True
    return os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode)


def write_text(path: str | os.PathLike, text: str) -> None:
    """
    Write a text file in UTF-8 that appears complete or not at all.

    Args:
        path (`str` or `os.PathLike`): As for [`new_file`].
        text (`str`): Its content.
    """
    with new_file(path) as file:
        file.write_text(text, encoding="utf-8")


def write_json(path: str | os.PathLike, value: Any) -> None:
    """
    Write a JSON file that appears complete or not at all.

    Args:
        path (`str` or `os.PathLike`): As for [`new_file`].
        value (`Any`): Its content.
    """
    write_text(path, json.dumps(value, indent=2) + "\n")


@contextmanager
def new_directory(
    output: str | os.PathLike, overwrite: bool = False, *, mark: str = "config.json", source: str | None = None
) -> Iterator[Path]:
    """
    Write a directory that appears under its name only when the block succeeds.

    Args:
        output (`str` or `os.PathLike`): The directory.
        overwrite (`bool`, *optional*, defaults to `False`): Replace an existing directory.
        mark, source: As for [`check_output`].

    Yields:
        `Path`: The directory to write in, beside `output`. It is removed if the block fails.

    Example:

    ```python
    >>> from hf_sparse_hopfield.files import new_directory

    >>> with new_directory("checkpoint") as directory:
    ...     _ = (directory / "config.json").write_text("{}")

    ```
    """
    target = Path(output).absolute()
    check_output(target, overwrite, mark=mark, source=source)
    target.parent.mkdir(parents=True, exist_ok=True)
    with _scratch_directory(target) as scratch:
        directory = scratch / target.name
        directory.mkdir()
        yield directory
        _refuse_unreplaceable(target, overwrite, mark)  # it may have appeared in the meantime
        if target.exists():
            os.replace(target, scratch / _OLD)
        os.replace(directory, target)


def check_output(
    output: str | os.PathLike, overwrite: bool, *, mark: str = "config.json", source: str | None = None
) -> None:
    """
    Refuse an output directory that must not be replaced, and remove what a killed process left beside it.

    Args:
        output (`str` or `os.PathLike`): The directory to write.
        overwrite (`bool`): Whether an existing directory may be replaced.
        mark (`str`, *optional*, defaults to `"config.json"`):
            A file that identifies a directory that may be replaced. Without it, only an empty directory is replaced.
        source (`str`, *optional*): The file or directory that is read. A directory that contains it is never replaced.
    """
    target = Path(output).absolute()
    _remove_leftovers(target)
    if source is not None and os.path.exists(source) and Path(source).resolve().is_relative_to(target.resolve()):
        raise ValueError(f"output {str(target)!r} is the source or contains it: choose another name.")
    _refuse_unreplaceable(target, overwrite, mark)


def _refuse_unreplaceable(target: Path, overwrite: bool, mark: str) -> None:
    if not target.exists():
        return
    if not overwrite:
        raise FileExistsError(f"output {str(target)!r} already exists: choose another name or add --overwrite.")
    if not target.is_dir():
        raise NotADirectoryError(f"output {str(target)!r} is a file; it must be a directory.")
    if any(target.iterdir()) and not (target / mark).exists():
        raise FileExistsError(
            f"output {str(target)!r} has no {mark}, so it is not a directory that this would replace: choose another name."
        )


@contextmanager
def _scratch_directory(target: Path) -> Iterator[Path]:
    """A locked directory beside the target: a rename from it to the target is atomic."""
    _remove_leftovers(target)
    created = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    scratch = created.with_name(f".{target.name}.partial-{created.name.rpartition('.')[2]}")
    with _locked(created):
        try:
            created.rename(scratch)  # locked before it gets the name by which others find leftovers
            yield scratch
        finally:
            shutil.rmtree(created, ignore_errors=True)
            _remove_scratch(scratch, target)


def _remove_scratch(scratch: Path, target: Path) -> bool:
    """Remove a scratch directory. Returns whether a directory that was about to be replaced had to be put back."""
    old = scratch / _OLD
    interrupted = old.exists() and not target.exists()
    if interrupted:
        os.replace(old, target)
    shutil.rmtree(scratch, ignore_errors=True)
    return interrupted


def _remove_leftovers(target: Path) -> None:
    """Remove the scratch directories of processes that were killed."""
    for scratch in target.parent.glob(f".{glob.escape(target.name)}.partial-*"):
        with _locked(scratch) as abandoned:
            if not abandoned:
                continue
            if _remove_scratch(scratch, target):
                print(f"restored {str(target)!r}, which an interrupted run was replacing.", file=sys.stderr)
            print(f"removed {scratch.name}, left by an interrupted run.", file=sys.stderr)


@contextmanager
def _locked(directory: Path) -> Iterator[bool]:
    """Yields whether the directory could be locked. The lock ends with the process, however the process ends."""
    if fcntl is None:
        yield False
        return
    try:
        handle = os.open(directory, os.O_RDONLY)
    except FileNotFoundError:  # its owner has just finished
        yield False
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        locked = True
    except OSError:  # another process writes there, or the file system does not support locks
        locked = False
    try:
        yield locked
    finally:
        os.close(handle)
