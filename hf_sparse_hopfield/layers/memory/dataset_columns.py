# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Vectors out of a column of a dataset."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...checks import check_integer


if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset


def column_batches(
    dataset: "Dataset | IterableDataset", column: str, batch_size: int, dtype: torch.dtype
) -> Iterator[Tensor]:
    """
    The vectors of a column, some rows at a time.

    Args:
        dataset, column, batch_size, dtype: As for [`HopfieldMemory.from_dataset`].

    Yields:
        `torch.Tensor` of shape `(rows, d)`.
    """
    check_integer("batch_size", batch_size)
    names = dataset.column_names
    if names is not None and column not in names:
        raise ValueError(f"column={column!r} is not in the dataset, which has {sorted(names)}.")
    first = 0
    for batch in dataset.select_columns([column]).with_format(None).iter(batch_size):
        values = batch[column]
        try:
            vectors = torch.as_tensor(values, dtype=dtype)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"column={column!r} must hold vectors of numbers of the same width; rows {first} to {first + len(values) - 1} do "
                f"not: {error}"
            ) from error
        if vectors.ndim != 2:
            raise ValueError(
                f"column={column!r} must hold vectors; rows {first} to {first + len(values) - 1} give the shape "
                f"{tuple(vectors.shape)}."
            )
        first += len(values)
        yield vectors
