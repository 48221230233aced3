# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The data of a training script: read from the Hub, from files or generated, split, and limited in size."""

import logging
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from data_checks import check_columns
from datasets import Dataset, DatasetBuilder, load_dataset_builder
from datasets.exceptions import DatasetGenerationError
from transformers import TrainingArguments


logger = logging.getLogger("examples")

SPLITS = ("train", "validation", "test")
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
# How `datasets` reads a file. Tab-separated files have no quoting, and no word ("NA", "null") means a missing value.
_READERS = {
    ".csv": ("csv", {"keep_default_na": False}),
    ".tsv": ("csv", {"keep_default_na": False, "sep": "\t", "quoting": 3}),
    ".json": ("json", {}),
    ".jsonl": ("json", {}),
    ".txt": ("text", {}),
    ".parquet": ("parquet", {}),
}


@dataclass
class DataArguments:
    """Where the samples come from: the Hub, local files, or `--smoke`."""

    dataset_name: str | None = field(default=None, metadata={"help": "dataset on the Hub"})
    dataset_config_name: str | None = field(default=None, metadata={"help": "configuration of the dataset"})
    data_dir: str | None = field(
        default=None, metadata={"help": "directory of the files below, or one whose splits `datasets` finds by itself"}
    )
    train_file: str | None = field(
        default=None, metadata={"help": "training data: csv, tsv, json, jsonl, txt or parquet, may be .gz"}
    )
    validation_file: str | None = field(default=None, metadata={"help": "validation data, same formats"})
    test_file: str | None = field(default=None, metadata={"help": "test data, same formats"})
    column_names: str | None = field(
        default=None, metadata={"help": "column names of csv and tsv files without a header: label,text"}
    )
    split_column: str | None = field(
        default=None, metadata={"help": "column with the split of each row, if one file holds several splits"}
    )
    validation_share: float = field(
        default=0.1, metadata={"help": "share of the training data to validate on if there is no validation data"}
    )
    max_train_samples: int | None = field(
        default=None, metadata={"help": "maximum number of training samples, drawn with seed 0"}
    )
    max_eval_samples: int | None = field(default=None, metadata={"help": "maximum number of validation samples"})
    max_test_samples: int | None = field(default=None, metadata={"help": "maximum number of test samples"})
    cache_dir: str | None = field(default=None, metadata={"help": "cache directory of `datasets`"})
    smoke: bool = field(
        default=False, metadata={"help": "a tiny run on generated data that shows that the script works"}
    )

    def __post_init__(self) -> None:
        local = any(getattr(self, f"{split}_file") for split in SPLITS)
        if not (self.smoke or self.dataset_name or self.data_dir or local):
            raise ValueError("there is no data: give --dataset_name, --train_file, --data_dir or --smoke.")
        if self.dataset_name and local:
            raise ValueError(f"give dataset_name or files, not both; got dataset_name={self.dataset_name!r}.")
        if not 0 < self.validation_share < 1:
            raise ValueError(f"validation_share must lie in (0, 1), got {self.validation_share}.")

    def files(self) -> dict[str, str]:
        """Paths of the split files that are given, relative to `data_dir` if that is given."""
        names = {split: getattr(self, f"{split}_file") for split in SPLITS}
        return {split: os.path.join(self.data_dir or "", name) for split, name in names.items() if name}


@dataclass
class LabelledDataArguments(DataArguments):
    """Data of classification: samples with a label."""

    label_column: str = field(
        default="label", metadata={"help": "column with the labels: integers from 0 up, or words"}
    )
    num_labels: int | None = field(default=None, metadata={"help": "number of classes (default: from the data)"})


def wanted_splits(training: TrainingArguments) -> tuple[str, ...]:
    """The splits to read. Test data are only read for `--do_predict`; otherwise they need not even have labels."""
    return SPLITS if training.do_predict else SPLITS[:2]


def load_splits(
    data: DataArguments,
    smoke: Callable[[], dict[str, Dataset]],
    readers: dict[str, Callable[[str, str], Dataset]] | None = None,
    wanted: Sequence[str] = SPLITS,
    in_order: bool = False,
) -> dict[str, Dataset]:
    """
    Read the data. If a validation split is wanted but missing, it is taken from the training data.

    Args:
        data ([`DataArguments`]): Where the data are.
        smoke (`Callable`): Generates the splits for `--smoke`.
        readers (`dict[str, Callable]`, *optional*):
            Functions of path and split for file endings that `datasets` does not read, such as `.npz`.
        wanted (`Sequence[str]`, *optional*): The splits to read.
        in_order (`bool`, *optional*, defaults to `False`):
            Keep all rows in order, without shuffling or sampling: they are parts of one text or series, from which samples
            are cut later.

    Returns:
        `dict[str, Dataset]`: The wanted splits that exist, none of them empty.
    """
    files = {split: path for split, path in data.files().items() if split in wanted}
    if data.smoke:
        made = smoke()
        splits = {split: made[split] for split in wanted}
    elif files:
        splits = {split: _read_file(data, path, split, readers or {}) for split, path in files.items()}
    else:
        splits = _read_all(data, wanted)
    for split, dataset in splits.items():
        if len(dataset) == 0:
            raise ValueError(
                f"the split {split!r} is empty: {files.get(split) or data.dataset_name or data.data_dir}."
            )
    if "validation" in wanted and "validation" not in splits and "train" in splits:
        splits |= _held_out(splits["train"], data.validation_share, in_order)
    return splits if in_order else {split: limited(splits[split], split, data) for split in splits}


def _held_out(train: Dataset, share: float, in_order: bool) -> dict[str, Dataset]:
    """Split a share of the training data off for validation."""
    rows = len(train)
    held = math.ceil(rows * share)
    if held >= rows:
        raise ValueError(
            f"the split 'train' has {rows} rows, too few to take {share:.0%} of them for validation; give "
            "--validation_file, or more data."
        )
    logger.info("no validation data: using %d of the %d training rows", held, rows)
    parts = train.train_test_split(held, shuffle=not in_order, seed=None if in_order else 0)
    return {"train": parts["train"], "validation": parts["test"]}


def limited(dataset: Dataset, split: str, data: DataArguments) -> Dataset:
    """Return a split, sampled down to the maximum number of samples given in the arguments."""
    limits = {"train": data.max_train_samples, "validation": data.max_eval_samples, "test": data.max_test_samples}
    limit = limits[split]
    return dataset if limit is None or limit >= len(dataset) else dataset.shuffle(seed=0).select(range(limit))


@contextmanager
def _reading(source: str) -> Iterator[None]:
    """Turn any error of a reader into one that names the source. Damaged files raise errors of every kind."""
    try:
        yield
    except Exception as error:
        reason = error.__cause__ if isinstance(error, DatasetGenerationError) and error.__cause__ else error
        raise ValueError(
            f"cannot read {source}: {type(reason).__name__}: {str(reason) or 'there is nothing to read'}"
        ) from error


def _prepared(builder: DatasetBuilder, wanted: Sequence[str]) -> dict[str, Dataset]:
    """Load the splits of a dataset. `as_dataset` fails on a split without rows, so that one becomes an empty dataset."""
    builder.download_and_prepare()
    rows = {split: info.num_examples for split, info in builder.info.splits.items()}
    return {
        split: builder.as_dataset(split) if rows[split] else Dataset.from_dict({}) for split in wanted if split in rows
    }


def _read_all(data: DataArguments, wanted: Sequence[str]) -> dict[str, Dataset]:
    """Read all splits of `--dataset_name`, or those that `datasets` finds in `--data_dir`."""
    if data.dataset_name:
        source = {"path": data.dataset_name, "name": data.dataset_config_name, "data_dir": data.data_dir}
        title = f"dataset_name {data.dataset_name!r}"
    else:
        source, title = {"path": data.data_dir}, f"data_dir {data.data_dir!r}"
    with _reading(title):
        builder = load_dataset_builder(**source, cache_dir=data.cache_dir)
        found = builder.config.data_files or {}
    for split, path in ((split, path) for split, paths in found.items() for path in paths):
        if os.path.isfile(path) and os.path.getsize(path) == 0:
            raise ValueError(f"the split {str(split)!r} is empty: {path} has no content.")
    with _reading(title):
        splits = _prepared(builder, wanted)
    if not splits:
        raise ValueError(f"{title} has none of the splits {list(wanted)}, only {list(builder.info.splits)}.")
    return splits


def _read_file(
    data: DataArguments, path: str, split: str, readers: dict[str, Callable[[str, str], Dataset]]
) -> Dataset:
    stem, ending = os.path.splitext(path)
    if ending in _COMPRESSED:
        ending = os.path.splitext(stem)[1]
    if ending not in _READERS and ending not in readers:
        raise ValueError(f"{split}_file {path!r} must end in one of {[*_READERS, *readers]}.")
    with _reading(f"{split}_file {path!r}"):
        if ending in readers:
            dataset = readers[ending](path, split)
        elif not os.path.isfile(path):
            raise FileNotFoundError("there is no such file")
        elif os.path.getsize(path) == 0:
            return Dataset.from_dict({})
        else:
            kind, options = _READERS[ending]
            if kind == "csv" and data.column_names:
                options = {**options, "column_names": data.column_names.split(",")}
            builder = load_dataset_builder(kind, data_files={split: path}, cache_dir=data.cache_dir, **options)
            dataset = _prepared(builder, [split])[split]
    if data.split_column is not None and len(dataset):
        check_columns({split: dataset}, {"split_column": data.split_column})
        own = np.asarray(dataset[data.split_column]) == split
        dataset = dataset.select(np.flatnonzero(own)).remove_columns(data.split_column)
    return dataset


def first_batches(
    dataset: Dataset | None, collator: Callable, count: int, size: int, labels: bool = True
) -> list[dict]:
    """
    Return the first samples as batches, to calibrate or to count supports on.

    Args:
        dataset ([`~datasets.Dataset`]): Samples in the form the collator takes.
        collator (`Callable`): Makes a batch of samples.
        count (`int`): Maximum number of batches.
        size (`int`): Samples per batch.
        labels (`bool`, *optional*, defaults to `True`): Keep the labels.
    """
    if not count:
        return []
    if dataset is None:
        raise ValueError("calibration needs training data: give --train_file, or --calibration_batches 0.")
    rows = [dataset[i] for i in range(min(count * size, len(dataset)))]
    batches = [dict(collator(rows[start : start + size])) for start in range(0, len(rows), size)]
    return [{key: value for key, value in batch.items() if labels or key != "labels"} for batch in batches]
