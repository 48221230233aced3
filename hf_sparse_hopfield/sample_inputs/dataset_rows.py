# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Rows of a dataset: from the Hub, from a folder, or from a table in a file."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from datasets import Dataset


_TABLES = {".jsonl": "json", ".json": "json", ".csv": "csv", ".parquet": "parquet"}
_FORMATS = {**_TABLES, ".txt": "text"}
_ENDINGS = f"a file must end in {', '.join(_TABLES)}, or in .gz after that"
_READING: dict[str, dict[str, Any]] = {"csv": {"keep_default_na": False}}  # "NA" and "null" are words
_BETWEEN = "\n\n"  # rows


def dataset_text(name: str, *, split: str = "train", column: str = "text", characters: int) -> str:
    """
    Join the rows of a dataset until there is enough text. No more than that is read or downloaded.

    Args:
        name (`str`): As for `datasets.load_dataset`, a folder of `save_to_disk`, or a `.jsonl`, `.csv` or `.parquet` file,
            which may be `.gz`.
        split (`str`, *optional*, defaults to `"train"`): The split. A file has only one.
        column (`str`, *optional*, defaults to `"text"`): The column with the text.
        characters (`int`): How much text is enough.

    Example:

    ```python
    >>> from pathlib import Path
    >>> from hf_sparse_hopfield.sample_inputs import dataset_text

    >>> size = Path("rows.csv").write_text("label,text\\n0,some words\\n1,more words\\n")
    >>> dataset_text("rows.csv", characters=100)
    'some words\\n\\nmore words'

    ```
    """
    if is_text_file(name):
        raise ValueError(f"{name!r} is not a dataset: {_ENDINGS}. A text file goes by its name alone.")
    parts: list[str] = []
    found = 0
    for row in _rows_of(name, split):
        if not isinstance(row.get(column), str):
            texts = [known for known, value in row.items() if isinstance(value, str)]
            raise ValueError(
                f"the dataset {name!r} has no text in a column {column!r}; its columns with text are {', '.join(texts) or 'none'}."
            )
        parts.append(row[column])
        found += len(row[column]) + len(_BETWEEN)
        if found >= characters:
            break
    return _BETWEEN.join(parts)


def dataset_rows(name: str, *, split: str | None = None, count: int, seed: int = 0) -> "Dataset":
    """
    Choose rows of a dataset at random.

    Args:
        name (`str`):
            As for [`dataset_text`]; a `.txt` file has a row, with the column `text`, on each line that is not empty. A folder may
            also have images, in one folder for each label.
        split (`str`, *optional*): The split; `"test"` by default. A file has none.
        count (`int`): Number of rows; fewer if the dataset has fewer.
        seed (`int`, *optional*, defaults to 0): Chooses the rows.

    Example:

    ```python
    >>> from pathlib import Path
    >>> from hf_sparse_hopfield.sample_inputs import dataset_rows

    >>> size = Path("rows.csv").write_text("label,text\\n0,some words\\n1,more words\\n")
    >>> sorted(dataset_rows("rows.csv", count=5)["text"])
    ['more words', 'some words']

    ```
    """
    if split is not None and (_is_file(name) or Path(name, "dataset_info.json").is_file()):
        raise ValueError(f"split={split!r} is for a dataset with several: {name!r} has none.")
    with _reading(name):
        rows = _load(name, split or "test", streaming=False)
    if _format(name) == "text":
        rows = rows.select([number for number, text in enumerate(rows["text"]) if text.strip()])
    return rows.shuffle(seed=seed).select(range(min(count, len(rows))))


def _rows_of(name: str, split: str) -> Iterator[dict[str, Any]]:
    """The rows of a dataset, one by one."""
    with _reading(name):
        yield from _load(name, split, streaming=True)


@contextmanager
def _reading(name: str) -> Iterator[None]:
    """
    Let errors name a damaged file, which those of datasets do not. Its progress bars and its own log of the error stay away: it takes
    moments to read a file, and a download has a bar of its own.
    """
    import datasets
    from datasets.exceptions import DatasetsError

    disabled, level = datasets.are_progress_bars_disabled(), datasets.logging.get_verbosity()
    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(logging.CRITICAL)
    try:
        yield
    except (DatasetsError, ValueError, OSError, EOFError) as error:
        if not Path(name).is_file() or _format(name) is None:
            raise
        reason = " ".join(str(error.__cause__ or error).split())
        raise ValueError(f"{name!r} cannot be read as {_format(name)}: {reason}") from error
    finally:
        datasets.logging.set_verbosity(level)
        if not disabled:
            datasets.enable_progress_bars()


def is_text_file(name: str) -> bool:
    """Whether a name is that of a file with running text, `.txt` or `.txt.gz`."""
    return _is_file(name) and _format(name) == "text"


def _format(name: str) -> str | None:
    return _FORMATS.get(Path(name.removesuffix(".gz")).suffix)


def _is_file(name: str) -> bool:
    """Whether a name is that of a file. One that only looks so, and does not exist, is refused."""
    if _format(name) is not None and not Path(name).exists():
        raise FileNotFoundError(f"there is no file {name!r}.")
    return Path(name).is_file()


def _load(name: str, split: str, streaming: bool) -> Any:
    from datasets import DatasetDict, load_dataset, load_from_disk

    path = Path(name)
    if _is_file(name):
        kind = _format(name)
        if kind is None:
            raise ValueError(f"{name!r} is not a dataset: {_ENDINGS}.")
        options = _READING.get(kind, {})
        return load_dataset(kind, data_files=name, split="train", streaming=streaming, **options)
    if any((path / file).is_file() for file in ("dataset_info.json", "dataset_dict.json")):
        stored = load_from_disk(name)
        if not isinstance(stored, DatasetDict):
            return stored
        if split not in stored:
            raise ValueError(f"the dataset {name!r} has no split {split!r}; it has {', '.join(stored)}.")
        return stored[split]
    return load_dataset(name, split=split, streaming=streaming)
