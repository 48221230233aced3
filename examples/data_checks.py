# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Checks of columns, texts and labels, made before the first training step."""

from datasets import ClassLabel, Dataset, Value


_TEXT = ("string", "large_string")
_WORDS = (*_TEXT, "bool")


def check_columns(splits: dict[str, Dataset], columns: dict[str, str | None]) -> None:
    """
    Require that every split has these columns, with a value in each row.

    Args:
        splits (`dict[str, Dataset]`): The data.
        columns (`dict[str, str]`): Maps an argument to the column it names. `None` is skipped.
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
    Require that every split has these columns, with a text in each row.

    Args:
        splits (`dict[str, Dataset]`): The data.
        columns (`dict[str, str]`): Maps an argument to the column it names. `None` is skipped.
        may_be_empty (`bool`, *optional*, defaults to `False`): Allow blank rows, such as the empty lines of a book.
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
    Check the labels of all splits and return the names of the classes.

    Labels are integers or words. Integers must lie in `0, ..., num_labels - 1`; without `num_labels`, each integer up to
    the largest must occur in the training data. Words must occur in the training data.

    Args:
        splits (`dict[str, Dataset]`): The data.
        column (`str`): The column with the labels.
        num_labels (`int`, *optional*): Number of classes, if the labels are integers.
        names (`list[str]`, *optional*): Classes of a trained model, which the data must fit.
    """
    split, first = next(iter(splits.items()))
    feature = first.features[column]
    if not isinstance(feature, (Value, ClassLabel)):
        raise ValueError(f"labels in the column {column!r} must be integers or words, one per row, got {feature}.")
    are_words = feature.dtype in _WORDS
    if are_words:
        _refuse_empty_labels(splits, column)
    if names is None:
        if isinstance(feature, ClassLabel):
            names = feature.names
        elif are_words:
            names = sorted(map(str, first.unique(column)))
        else:
            names = _names_of_integers(first, split, column, num_labels)
    if len(names) < 2:
        raise ValueError(f"the column {column!r} has only the label {names}: there is nothing to tell apart.")
    _refuse_unknown_labels(splits, column, names, are_words)
    return names


def _names_of_integers(dataset: Dataset, split: str, column: str, num_labels: int | None) -> list[str]:
    found = dataset.unique(column)
    if not all(isinstance(label, int) for label in found):
        kinds = sorted({type(label).__name__ for label in found})
        raise ValueError(f"labels in the column {column!r} must be integers or words, got {kinds}.")
    absent = sorted(set(range(max(found))).difference(found))
    if absent and num_labels is None:
        raise ValueError(
            f"the labels in the column {column!r} of the split {split!r} go up to {max(found)}, but {len(absent)} of the "
            f"smaller ones never occur, the first being {absent[0]}. Is {max(found)} a mistake? If not, give the number of "
            "classes as --num_labels."
        )
    return [str(label) for label in range(num_labels or max(found) + 1)]


def _refuse_unknown_labels(splits: dict[str, Dataset], column: str, names: list[str], are_words: bool) -> None:
    known = set(names) if are_words else range(len(names))
    for split, dataset in splits.items():
        for row, label in enumerate(dataset[column]):
            if (str(label) if are_words else label) not in known:
                right = names if are_words else f"0 to {len(names) - 1}"
                raise ValueError(
                    f"row {row} of the split {split!r} has the label {label!r} in {column!r}, not {right}."
                )


def _refuse_empty_labels(splits: dict[str, Dataset], column: str) -> None:
    for split, dataset in splits.items():
        for row, label in enumerate(dataset[column]):
            if not str(label).strip():
                raise ValueError(f"row {row} of the split {split!r} has an empty label in the column {column!r}.")


def label_numbers(dataset: Dataset, column: str, names: list[str]) -> list[int]:
    """Return the labels of a checked split as integers."""
    if dataset.features[column].dtype in _WORDS:
        numbers = {name: number for number, name in enumerate(names)}
        return [numbers[str(label)] for label in dataset[column]]
    return list(dataset[column])
