# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Files and directories that appear complete or not at all.

Everything is written in a hidden scratch directory beside the target and then renamed. The scratch directory is locked while
its process lives, so that the next run can tell what a killed process left behind and remove it.

A directory holds a list of what was written into it. It is replaced only as long as it holds nothing else.
"""

import errno
import glob
import json
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice, takewhile
from pathlib import Path
from typing import Any


try:
    import fcntl
except ImportError:  # Windows has no flock: leftovers of a killed process stay
    fcntl = None  # type: ignore[assignment]


_OLD = ".old"  # in the scratch directory: the directory that is being replaced
WRITTEN_FILE = ".hf_sparse_hopfield.json"  # in a directory: its files, with the time when each was written
_NAMED_FILES = 5  # in an error

# Where there is no room: what the system says, which safetensors and tokenizers repeat in errors of their own, and what torch says.
_NO_ROOM = {
    os.strerror(errno.ENOSPC): "the disk is full",
    os.strerror(errno.EDQUOT): "your share of the disk is full",
    os.strerror(errno.EFBIG): "it needs a larger file than the system allows (`ulimit -f`)",
    "inline_container.cc": "the disk is full, or it needs a larger file than the system allows (`ulimit -f`)",
}


@contextmanager
def naming_full_disk(path: str | os.PathLike) -> Iterator[None]:
    """
    An error of a full disk says in words what could not be written, whichever library raises it.

    Args:
        path (`str` or `os.PathLike`): What the block writes.
    """
    try:
        yield
    except Exception as error:  # tokenizers raises no other
        reason = next((reason for said, reason in _NO_ROOM.items() if said in str(error)), None)
        if reason is None:
            raise
        raise OSError(
            f"{str(path)!r} cannot be written: {reason}. Make room or choose another place, and run the command again."
        ) from error


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
    with naming_full_disk(path), _parent_directory(target), _scratch_directory(target) as scratch:
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
    output: str | os.PathLike, overwrite: bool = False, *, source: str | os.PathLike | None = None
) -> Iterator[Path]:
    """
    Write a directory that appears under its name only when the block succeeds.

    Args:
        output (`str` or `os.PathLike`): The directory. A symbolic link stays, and the directory it points to is written.
        overwrite (`bool`, *optional*, defaults to `False`):
            Replace an existing directory, if it is empty or if this function wrote all that it holds.
        source (`str`, *optional*): As for [`check_output`].

    Yields:
        `Path`: The directory to write in, beside `output`. It is removed if the block fails.

    Example:

    ```python
    >>> from hf_sparse_hopfield.files import new_directory

    >>> with new_directory("checkpoint") as directory:
    ...     _ = (directory / "config.json").write_text("{}")

    ```
    """
    target = check_output(output, overwrite, source=source)
    with naming_full_disk(output), _parent_directory(target), _scratch_directory(target) as scratch:
        directory = scratch / target.name
        directory.mkdir()
        yield directory
        times = {path.relative_to(directory).as_posix(): path.lstat().st_mtime_ns for path in _files_below(directory)}
        (directory / WRITTEN_FILE).write_text(json.dumps(times, indent=2), encoding="utf-8")
        _refuse_unreplaceable(target, overwrite)  # it may have appeared in the meantime
        if target.exists():
            os.replace(target, scratch / _OLD)
        try:
            os.replace(directory, target)
        except OSError:
            _refuse_unreplaceable(target, overwrite=False)  # another process was faster
            raise


def check_output(output: str | os.PathLike, overwrite: bool, *, source: str | os.PathLike | None = None) -> Path:
    """
    Refuse an output directory that cannot be written or must not be replaced, and remove what a killed process left beside
    it.

    Args:
        output (`str` or `os.PathLike`): The directory to write.
        overwrite (`bool`): Whether an existing directory may be replaced.
        source (`str`, *optional*): The file or directory that is read. A directory that contains it is never replaced.

    Returns:
        `Path`: The directory, without symbolic links.
    """
    target = Path(os.path.realpath(output))
    if os.path.islink(target):
        raise OSError(f"output {str(output)!r} is a symbolic link that leads to itself.")
    if source is not None and os.path.exists(source) and Path(source).resolve().is_relative_to(target):
        raise ValueError(f"output {str(target)!r} is the source or contains it: choose another name.")
    _refuse_unwritable(target)
    _remove_leftovers(target)
    _refuse_unreplaceable(target, overwrite)
    return target


def check_writable(path: str | os.PathLike) -> None:
    """
    Refuse a file that cannot be written because of the directory it is in. Missing directories are no reason, as they can
    be made.

    Args:
        path (`str` or `os.PathLike`): The file.
    """
    if not _is_special(path):
        _refuse_unwritable(Path(os.path.realpath(path)))


def _refuse_unwritable(target: Path) -> None:
    try:  # permissions do not tell: root ignores them, and a file system may be read-only
        with _parent_directory(target, keep=False):
            os.rmdir(tempfile.mkdtemp(prefix=f".{target.name}.partial.", dir=target.parent))
    except OSError as error:
        raise type(error)(f"{str(target)!r} cannot be written: {error.strerror} ({error.filename!r}).") from error


def _refuse_unreplaceable(target: Path, overwrite: bool) -> None:
    if not target.exists():
        return
    if not target.is_dir():
        raise NotADirectoryError(f"output {str(target)!r} is a file; it must be a directory.")
    if not overwrite:
        raise FileExistsError(f"output {str(target)!r} already exists: choose another name or add --overwrite.")
    if os.path.ismount(target):
        raise OSError(f"output {str(target)!r} is a mount point, which cannot be replaced: choose a name inside it.")
    if not os.access(target, os.W_OK):
        raise PermissionError(f"output {str(target)!r} is write-protected: choose another name.")
    foreign = list(islice(_foreign_files(target), _NAMED_FILES + 1))
    if foreign:
        names = ", ".join([*foreign[:_NAMED_FILES], *(["..."] if len(foreign) > _NAMED_FILES else [])])
        raise FileExistsError(
            f"output {str(target)!r} holds files that hf_sparse_hopfield did not write, or that have changed since: {names}. "
            "Only what it wrote is replaced: choose another name, or move these files away."
        )


def _foreign_files(directory: Path) -> Iterator[str]:
    """The files of a directory that [`new_directory`] did not write, or that have changed since."""
    times: Any = None
    with suppress(OSError, ValueError):
        times = json.loads((directory / WRITTEN_FILE).read_text(encoding="utf-8"))
    times = times if isinstance(times, dict) else {}
    for path in _files_below(directory):
        name = path.relative_to(directory).as_posix()
        if name != WRITTEN_FILE and times.get(name) != path.lstat().st_mtime_ns:
            yield name


def _files_below(directory: Path) -> Iterator[Path]:
    """All that is in a directory and below it, except directories. Symbolic links are not followed."""
    for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
        if entry.is_dir(follow_symlinks=False):
            yield from _files_below(Path(entry.path))
        else:
            yield Path(entry.path)


def rewrite_text(path: Path, text: str) -> None:
    """
    Replace the text of a file that [`new_directory`] wrote. It still counts as written by us, unless somebody else has
    changed it before.

    Args:
        path (`Path`): The file.
        text (`str`): Its new content.
    """
    record, time = path.parent / WRITTEN_FILE, path.stat().st_mtime_ns
    write_text(path, text)
    if record.is_file():
        times = json.loads(record.read_text(encoding="utf-8"))
        if times.get(path.name) == time:
            write_json(record, times | {path.name: path.stat().st_mtime_ns})


@contextmanager
def _parent_directory(target: Path, keep: bool = True) -> Iterator[None]:
    """Make the directories around a target that are missing; remove them if the block fails, or if they are not to stay."""
    missing = list(takewhile(lambda parent: not os.path.exists(parent), target.parents))
    done = False
    try:
        if missing:
            target.parent.mkdir(parents=True, exist_ok=True)
        yield
        done = keep
    finally:
        for parent in missing if not done else ():
            with suppress(OSError):  # it holds something else by now
                parent.rmdir()


@contextmanager
def _scratch_directory(target: Path) -> Iterator[Path]:
    """A locked directory beside the target: a rename from it to the target is atomic."""
    _remove_leftovers(target)
    created = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    scratch = created.with_name(f".{target.name}.partial-{created.name.rpartition('.')[2]}")
    with locked(created):
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
        with locked(scratch) as abandoned:
            if not abandoned:
                continue
            if _remove_scratch(scratch, target):
                print(f"restored {str(target)!r}, which an interrupted run was replacing.", file=sys.stderr)
            print(f"removed {scratch.name}, left by an interrupted run.", file=sys.stderr)


@contextmanager
def locked(directory: Path) -> Iterator[bool]:
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
