# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Where the training scripts get their samples from, and what must be true of them before the first step."""

import logging
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from datasets import ClassLabel, Dataset, DatasetBuilder, Value, load_dataset_builder
from datasets.exceptions import DatasetGenerationError
from transformers import TrainingArguments


logger = logging.getLogger("examples")

SPLITS = ("train", "validation", "test")
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
# How `datasets` reads a file. A tab-separated file has no quoting, and no word in it ("NA", "null") means "missing".
_READERS = {
    ".csv": ("csv", {"keep_default_na": False}),
    ".tsv": ("csv", {"keep_default_na": False, "sep": "\t", "quoting": 3}),
    ".json": ("json", {}),
    ".jsonl": ("json", {}),
    ".txt": ("text", {}),
    ".parquet": ("parquet", {}),
}
_TEXT = ("string", "large_string")


@dataclass
class DataArguments:
    """Where the samples come from: the Hub, local files, or `--smoke`."""

    dataset_name: str | None = field(default=None, metadata={"help": "dataset on the Hub"})
    dataset_config_name: str | None = field(default=None, metadata={"help": "its configuration"})
    data_dir: str | None = field(
        default=None, metadata={"help": "directory that the files are in, or that `datasets` finds the splits of"}
    )
    train_file: str | None = field(
        default=None, metadata={"help": "csv, tsv, json, jsonl, txt or parquet, may be .gz"}
    )
    validation_file: str | None = field(default=None, metadata={"help": "the same for validation"})
    test_file: str | None = field(default=None, metadata={"help": "the same for the test"})
    column_names: str | None = field(
        default=None, metadata={"help": "names of the columns of csv and tsv files without a header: label,text"}
    )
    split_column: str | None = field(
        default=None, metadata={"help": "column that says which split a row belongs to, where one file has several"}
    )
    validation_share: float = field(
        default=0.1, metadata={"help": "share of the training data to validate on, where there is no validation data"}
    )
    max_train_samples: int | None = field(
        default=None, metadata={"help": "train on so many samples, drawn with seed 0"}
    )
    max_eval_samples: int | None = field(default=None, metadata={"help": "the same for validation"})
    max_test_samples: int | None = field(default=None, metadata={"help": "the same for the test"})
    cache_dir: str | None = field(default=None, metadata={"help": "where `datasets` keeps what it has read"})
    smoke: bool = field(default=False, metadata={"help": "a tiny run on generated data, to see that everything works"})

    def __post_init__(self) -> None:
        local = any(getattr(self, f"{split}_file") for split in SPLITS)
        if not (self.smoke or self.dataset_name or self.data_dir or local):
            raise ValueError("there is no data: give --dataset_name, --train_file, --data_dir or --smoke.")
        if self.dataset_name and local:
            raise ValueError(f"give dataset_name or files, not both; got dataset_name={self.dataset_name!r}.")
        if not 0 < self.validation_share < 1:
            raise ValueError(f"validation_share must lie in (0, 1), got {self.validation_share}.")

    def files(self) -> dict[str, str]:
        """Path of the file of each split that has one; in `data_dir`, if that is given."""
        names = {split: getattr(self, f"{split}_file") for split in SPLITS}
        return {split: os.path.join(self.data_dir or "", name) for split, name in names.items() if name}


def wanted_splits(training: TrainingArguments) -> tuple[str, ...]:
    """Where nothing is to be tested, the test data are not read: they need not even have labels."""
    return SPLITS if training.do_predict else SPLITS[:2]


def load_splits(
    data: DataArguments,
    smoke: Callable[[], dict[str, Dataset]],
    readers: dict[str, Callable[[str, str], Dataset]] | None = None,
    wanted: Sequence[str] = SPLITS,
    in_order: bool = False,
) -> dict[str, Dataset]:
    """
    Read the data. If validation data are wanted and there are none, some of the training data are taken for them.

    Args:
        data ([`DataArguments`]): Where it is.
        smoke (`Callable`): Makes the splits for `--smoke`.
        readers (`dict[str, Callable]`, *optional*):
            For endings that `datasets` does not read (such as `.npz`): a function of path and split.
        wanted (`Sequence[str]`, *optional*): Which splits to read.
        in_order (`bool`, *optional*, defaults to `False`):
            The rows are pieces of one text or series, which samples are cut out of later: they are neither mixed nor
            drawn from.

    Returns:
        `dict[str, Dataset]`: With some of `wanted`, none of them empty.
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
        rows = len(splits["train"])
        held = math.ceil(rows * data.validation_share)
        if held >= rows:
            raise ValueError(
                f"the split 'train' has {rows} rows, too few to take {data.validation_share:.0%} of them for validation; "
                "give --validation_file, or more data."
            )
        logger.info("no validation data: %d of the %d training rows are taken for it", held, rows)
        parts = splits["train"].train_test_split(held, shuffle=not in_order, seed=None if in_order else 0)
        splits |= {"train": parts["train"], "validation": parts["test"]}
    return splits if in_order else {split: limited(splits[split], split, data) for split in splits}


def limited(dataset: Dataset, split: str, data: DataArguments) -> Dataset:
    """At most as many samples of a split as the arguments say."""
    limits = {"train": data.max_train_samples, "validation": data.max_eval_samples, "test": data.max_test_samples}
    limit = limits[split]
    return dataset if limit is None or limit >= len(dataset) else dataset.shuffle(seed=0).select(range(limit))


@contextmanager
def _reading(source: str) -> Iterator[None]:
    """Whatever a reader says of what it cannot read, the error names it. Damaged files raise errors of every kind."""
    try:
        yield
    except Exception as error:
        reason = error.__cause__ if isinstance(error, DatasetGenerationError) and error.__cause__ else error
        raise ValueError(
            f"cannot read {source}: {type(reason).__name__}: {str(reason) or 'there is nothing to read'}"
        ) from error


def _prepared(builder: DatasetBuilder, wanted: Sequence[str]) -> dict[str, Dataset]:
    """The splits of a dataset; those without a row, which `as_dataset` refuses in words of its own, as empty ones."""
    builder.download_and_prepare()
    rows = {split: info.num_examples for split, info in builder.info.splits.items()}
    return {
        split: builder.as_dataset(split) if rows[split] else Dataset.from_dict({}) for split in wanted if split in rows
    }


def _read_all(data: DataArguments, wanted: Sequence[str]) -> dict[str, Dataset]:
    """All splits of `--dataset_name`, or of what `datasets` finds in `--data_dir`."""
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


def check_columns(splits: dict[str, Dataset], columns: dict[str, str | None]) -> None:
    """
    Every split must have these columns, with a value in each row.

    Args:
        splits (`dict[str, Dataset]`): The data.
        columns (`dict[str, str]`): Name of an argument to the column it names; `None` stands for none.
    """
    for split, dataset in splits.items():
        for argument, column in columns.items():
            if column is None:
                continue
            if column not in dataset.column_names:
                raise ValueError(
                    f"the split {split!r} has no column {column!r}, only {dataset.column_names}; --{argument} names it."
                )
            values = dataset.with_format("arrow")[column]
            if values.null_count:
                row = next(i for i, value in enumerate(values) if not value.is_valid)
                raise ValueError(f"row {row} of the split {split!r} has no value in the column {column!r}.")


def check_texts(splits: dict[str, Dataset], columns: dict[str, str | None], may_be_empty: bool = False) -> None:
    """
    Every split must have these columns, with a text in each row.

    Args:
        splits (`dict[str, Dataset]`): The data.
        columns (`dict[str, str]`): Name of an argument to the column it names; `None` stands for none.
        may_be_empty (`bool`, *optional*, defaults to `False`): Rows may be blank, as lines of a book.
    """
    check_columns(splits, columns)
    for split, dataset in splits.items():
        for argument, column in columns.items():
            if column is None:
                continue
            feature = dataset.features[column]
            if not isinstance(feature, Value) or feature.dtype not in _TEXT:
                raise ValueError(
                    f"the column {column!r} of the split {split!r} must hold text, but it was read as {feature}; "
                    f"--{argument} names it."
                )
            for row, text in enumerate(() if may_be_empty else dataset[column]):
                if not text.strip():
                    raise ValueError(f"row {row} of the split {split!r} has an empty text in the column {column!r}.")


def check_labels(
    splits: dict[str, Dataset], column: str, num_labels: int | None = None, names: list[str] | None = None
) -> list[str]:
    """
    Names of the classes. Labels that are numbers must be 0, 1, ... below `num_labels`, without which each of them must occur
    in the training data; labels that are words must occur in the training data.

    Args:
        splits (`dict[str, Dataset]`): The data.
        column (`str`): The column with the labels.
        num_labels (`int`, *optional*): How many classes there are, where the labels are numbers.
        names (`list[str]`, *optional*): The classes of a trained model, which the data must fit.
    """
    split, first = next(iter(splits.items()))
    feature = first.features[column]
    if not isinstance(feature, (Value, ClassLabel)):
        raise ValueError(f"labels in the column {column!r} must be integers or words, one a row, got {feature}.")
    are_words = feature.dtype in (*_TEXT, "bool")
    if are_words:
        _refuse_empty_labels(splits, column)
    if names is None and isinstance(feature, ClassLabel):
        names = feature.names
    elif names is None and are_words:
        names = sorted(map(str, first.unique(column)))
    elif names is None:
        found = first.unique(column)
        if not all(isinstance(label, int) for label in found):
            kinds = sorted({type(label).__name__ for label in found})
            raise ValueError(f"labels in the column {column!r} must be integers or words, got {kinds}.")
        absent = sorted(set(range(max(found))).difference(found))
        if absent and num_labels is None:
            raise ValueError(
                f"the labels in the column {column!r} of the split {split!r} go up to {max(found)}, but of those below "
                f"{len(absent)} never occur, {absent[0]} the first. Is {max(found)} a stray one? If not, --num_labels says "
                "how many classes there are."
            )
        names = [str(label) for label in range(num_labels or max(found) + 1)]
    if len(names) < 2:
        raise ValueError(f"the column {column!r} has the one label {names}: there is nothing to tell apart.")
    known = set(names) if are_words else range(len(names))
    for split, dataset in splits.items():
        for row, label in enumerate(dataset[column]):
            if (str(label) if are_words else label) not in known:
                right = names if are_words else f"0 to {len(names) - 1}"
                raise ValueError(
                    f"row {row} of the split {split!r} has the label {label!r} in {column!r}, not {right}."
                )
    return names


def _refuse_empty_labels(splits: dict[str, Dataset], column: str) -> None:
    for split, dataset in splits.items():
        for row, label in enumerate(dataset[column]):
            if not str(label).strip():
                raise ValueError(f"row {row} of the split {split!r} has an empty label in the column {column!r}.")


def label_numbers(dataset: Dataset, column: str, names: list[str]) -> list[int]:
    """The labels of a checked split as numbers."""
    if dataset.features[column].dtype in (*_TEXT, "bool"):
        numbers = {name: number for number, name in enumerate(names)}
        return [numbers[str(label)] for label in dataset[column]]
    return list(dataset[column])


def first_batches(
    dataset: Dataset | None, collator: Callable, count: int, size: int, labels: bool = True
) -> list[dict]:
    """
    The first samples as batches, to calibrate or count on.

    Args:
        dataset ([`~datasets.Dataset`]): Samples as the model takes them.
        collator (`Callable`): Makes a batch of samples.
        count (`int`): How many batches, at most.
        size (`int`): Samples in a batch.
        labels (`bool`, *optional*, defaults to `True`): Leave the labels in.
    """
    if not count:
        return []
    if dataset is None:
        raise ValueError("calibration needs training data: give --train_file, or --calibration_batches 0.")
    rows = [dataset[i] for i in range(min(count * size, len(dataset)))]
    batches = [dict(collator(rows[start : start + size])) for start in range(0, len(rows), size)]
    return [{key: value for key, value in batch.items() if labels or key != "labels"} for batch in batches]
