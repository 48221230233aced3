# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The text of a dataset: from the Hub, from a folder, or from a table in a file."""

from pathlib import Path
from typing import Any


_TABLES = {".jsonl": "json", ".json": "json", ".csv": "csv", ".parquet": "parquet"}
_BETWEEN = "\n\n"  # rows


def dataset_text(name: str, *, split: str = "train", column: str = "text", characters: int) -> str:
    """
    Join the rows of a dataset until there is enough text. No more than that is read or downloaded.

    Args:
        name (`str`): As for `datasets.load_dataset`, a folder of `save_to_disk`, or a `.jsonl`, `.csv` or `.parquet` file.
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
    rows: Any = _load(name, split)
    parts: list[str] = []
    found = 0
    for row in rows:
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


def _load(name: str, split: str) -> Any:
    from datasets import DatasetDict, load_dataset, load_from_disk

    path = Path(name)
    if path.is_file():
        if path.suffix not in _TABLES:
            raise ValueError(f"{name!r} is not a dataset: a file must end in {', '.join(_TABLES)}.")
        return load_dataset(_TABLES[path.suffix], data_files=str(path), split="train", streaming=True)
    if any((path / file).is_file() for file in ("dataset_info.json", "dataset_dict.json")):
        stored = load_from_disk(name)
        if not isinstance(stored, DatasetDict):
            return stored
        if split not in stored:
            raise ValueError(f"the dataset {name!r} has no split {split!r}; it has {', '.join(stored)}.")
        return stored[split]
    return load_dataset(name, split=split, streaming=True)
