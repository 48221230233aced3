# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Errors of a push that give the reason, where the files are, and the command that uploads them."""

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from huggingface_hub.errors import HfHubHTTPError, HTTPError, LocalTokenNotFoundError, OfflineModeIsEnabled

from ..checkpoints.known_files import known_files


_NO_CHECKPOINTS = ("_*", "checkpoint-*")  # the patterns that the Trainer ignores
_HUB_ERRORS = (HTTPError, LocalTokenNotFoundError, OfflineModeIsEnabled)


class PushError(OSError):
    """A failed push. The message gives the reason, where the files are, and how to try again."""


@contextmanager
def explained(repo_id: str, retry: str | None = None, **upload: Any) -> Iterator[None]:
    """
    Turn errors of the Hub into a [`PushError`] that says what to do.

    Args:
        repo_id (`str`): The repository.
        retry (`str`, *optional*): How to try again. By default, with the command that uploads the folder.
        **upload: Arguments of [`_upload_command`], if there is a folder to upload.
    """
    try:
        yield
    except PushError:
        raise
    except (HTTPError, OSError, RuntimeError) as error:
        causes = list(_causes(error))
        if not any(isinstance(cause, _HUB_ERRORS) for cause in causes):
            raise
        root = causes[-1]
        status = root.response.status_code if isinstance(root, HfHubHTTPError) else None
        reason = one_line(root)
        owner = f"for {repo_id.split('/')[0]!r}" if "/" in repo_id else "of yours"
        if status == 401:
            cure = "The token is missing or not accepted: log in with `hf auth login` or set HF_TOKEN."
        elif status == 403:
            cure = f"The token has no write access: use one with write permission {owner}, or another name."
        else:
            cure = "If the connection was lost, try again."
        retry = retry or _upload_command(repo_id, **upload)
        raise PushError(f"pushing to {repo_id!r} failed: {reason}\n{cure} Nothing is lost: {retry}") from error


def _upload_command(
    repo_id: str,
    folder: str | os.PathLike,
    only_known: bool = False,
    private: bool | None = None,
    revision: str | None = None,
    create_pr: bool = False,
) -> str:
    parts = ["hf", "upload", repo_id, os.fspath(Path(folder).absolute()), "."]
    parts += ["--private"] if private else []
    parts += ["--revision", revision] if revision else []
    parts += ["--create-pr"] if create_pr else []
    for file in known_files(Path(folder)) if only_known else ():
        parts += ["--include", file.as_posix()]
    for pattern in () if only_known else _NO_CHECKPOINTS:
        parts += ["--exclude", pattern] if any(Path(folder).glob(pattern)) else []
    return f"the files in {os.fspath(folder)!r} are complete; upload them with\n  {shlex.join(parts)}"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and its causes, down to the answer of the Hub, which huggingface_hub wraps for single files."""
    while error is not None:
        yield error
        if isinstance(error, HfHubHTTPError):
            return
        error = error.__cause__


def one_line(error: BaseException) -> str:
    """The message of an error on one line, or its class if it has none."""
    return " ".join(str(error).split()) or type(error).__name__
