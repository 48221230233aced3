# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Directories that are there as a whole or not at all, and that replace nothing unasked."""

import glob
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


try:
    import fcntl
except ImportError:  # Windows: what a killed process leaves stays there
    fcntl = None


@contextmanager
def new_directory(
    output: str | os.PathLike, overwrite: bool = False, *, mark: str = "config.json", source: str | None = None
) -> Iterator[Path]:
    """
    A directory that appears under its name only when the context ends well.

    Args:
        output (`str`): Its name.
        overwrite (`bool`, *optional*, defaults to `False`): Replace what has this name already.
        mark, source: As for [`check_output`].

    Yields:
        `Path`: Where to write, beside `output`. If the context fails, it is removed.
    """
    output = Path(output).absolute()
    check_output(output, overwrite, mark=mark, source=source)
    output.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{output.name}.partial-", dir=output.parent))
    try:
        with _locked(beside):
            yield beside
            beside.chmod(0o777 & ~_umask())
            _refuse_unreplaceable(output, overwrite, mark)  # it may have come in the meantime
            if output.exists():
                _replace(output, beside)
            else:
                os.replace(beside, output)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _replace(output: Path, new: Path) -> None:
    old = Path(tempfile.mkdtemp(prefix=f".{output.name}.old-", dir=output.parent))
    aside = old / output.name
    with _locked(old):
        try:
            os.replace(output, aside)
            os.replace(new, output)
        except BaseException:
            if aside.exists() and not output.exists():
                os.replace(aside, output)
            if not aside.exists():
                old.rmdir()
            raise
        shutil.rmtree(old)


def check_output(
    output: str | os.PathLike, overwrite: bool, *, mark: str = "config.json", source: str | None = None
) -> None:
    """
    Refuse a directory that must not be replaced, and clear up what a killed process has left beside it.

    Args:
        output (`str`): Directory that is to be written.
        overwrite (`bool`): Whether it may be replaced.
        mark (`str`, *optional*, defaults to `"config.json"`): A file that what may be replaced has, unless it is empty.
        source (`str`, *optional*): What is read. A directory that it is in must not be replaced.
    """
    output = Path(output).absolute()
    for old in output.parent.glob(f".{glob.escape(output.name)}.old-*"):
        with _locked(old) as abandoned:
            if abandoned and not output.exists() and (old / output.name).exists():
                os.replace(old / output.name, output)
                print(f"an interrupted run had put {str(output)!r} aside; it is back.", file=sys.stderr)
            if abandoned:
                shutil.rmtree(old, ignore_errors=True)
    for partial in output.parent.glob(f".{glob.escape(output.name)}.partial-*"):
        with _locked(partial) as abandoned:
            if abandoned:
                shutil.rmtree(partial, ignore_errors=True)
                print(f"removed {partial.name}, which an interrupted run had left.", file=sys.stderr)
    if source is not None and os.path.exists(source) and Path(source).resolve().is_relative_to(output.resolve()):
        raise ValueError(f"output {str(output)!r} is the source or has it inside: choose another name.")
    _refuse_unreplaceable(output, overwrite, mark)


def _refuse_unreplaceable(output: Path, overwrite: bool, mark: str) -> None:
    if not output.exists():
        return
    if not overwrite:
        raise FileExistsError(f"output {str(output)!r} exists already: choose another name or add --overwrite.")
    if not output.is_dir():
        raise NotADirectoryError(f"output {str(output)!r} is a file; it is to be a directory.")
    if any(output.iterdir()) and not (output / mark).exists():
        raise FileExistsError(
            f"output {str(output)!r} has no {mark}, so it is something else than what would replace it: choose another name."
        )


@contextmanager
def _locked(directory: Path) -> Iterator[bool]:
    """Yields whether the directory could be locked. The lock ends with the process, however that ends."""
    if fcntl is None:
        yield False
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        locked = True
    except OSError:  # another process writes there, or the file system knows no locks
        locked = False
    try:
        yield locked
    finally:
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
