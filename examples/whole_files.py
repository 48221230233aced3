# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Files that appear complete or not at all."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def new_file(path: str | os.PathLike) -> Iterator[Path]:
    """Yield a temporary path beside `path` to write to. It replaces `path` when the context ends without an error."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield beside
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def write_text(path: str | os.PathLike, content: str) -> None:
    """Write a text file."""
    with new_file(path) as beside:
        beside.write_text(content, encoding="utf-8")


def write_json(path: str | os.PathLike, value: Any) -> None:
    """Write a JSON file."""
    write_text(path, json.dumps(value, indent=2) + "\n")
