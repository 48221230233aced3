# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""A memory of a column of a dataset."""

import datasets
import numpy as np
import pytest
import torch

from hf_sparse_hopfield import HopfieldMemory


def vectors(rows: int = 50, width: int = 6) -> np.ndarray:
    normal = np.random.default_rng(0).normal(size=(rows, width))
    return (normal / np.linalg.norm(normal, axis=1, keepdims=True)).astype("float32")


def dataset_of(values: np.ndarray) -> datasets.Dataset:
    names = [f"text {row}" for row in range(len(values))]
    return datasets.Dataset.from_dict({"text": names, "embedding": list(values)})


@pytest.mark.parametrize("batch_size", [7, 50, 4096])
@pytest.mark.parametrize("kind", ["plain", "torch", "numpy", "streamed", "array"])
def test_rows_are_those_of_the_dataset(kind, batch_size):
    values = vectors()
    dataset = dataset_of(values)
    if kind in ("torch", "numpy"):
        dataset = dataset.with_format(kind)
    elif kind == "streamed":
        dataset = dataset.to_iterable_dataset()
    elif kind == "array":
        dataset = dataset.cast_column("embedding", datasets.List(datasets.Value("float32"), length=6))
    memory = HopfieldMemory.from_dataset(dataset, "embedding", batch_size=batch_size, alpha=1.5, beta=30.0)
    assert torch.equal(memory.patterns, torch.tensor(values)) and memory.alpha == 1.5
    found = memory.search(torch.tensor(values[[31, 4]]))
    assert found.rows[:, 0].tolist() == [31, 4]
    if kind == "plain":
        assert dataset[found.rows[0, 0].item()]["text"] == "text 31"


def test_rows_of_shuffled_and_selected_datasets_are_theirs():
    values = vectors()
    dataset = dataset_of(values).shuffle(seed=1).select(range(20))
    memory = HopfieldMemory.from_dataset(dataset, "embedding", beta=30.0, dtype=torch.float64)
    row = memory.search(torch.tensor(dataset[7]["embedding"], dtype=torch.float64)).rows[0].item()
    assert row == 7 and memory.dtype == torch.float64


def test_bad_columns_are_refused():
    dataset = dataset_of(vectors())
    with pytest.raises(ValueError, match=r"column='vector' is not in the dataset, which has \['embedding', 'text'\]"):
        HopfieldMemory.from_dataset(dataset, "vector")
    with pytest.raises(ValueError, match="column='text' must hold vectors of numbers"):
        HopfieldMemory.from_dataset(dataset, "text")
    ragged = datasets.Dataset.from_dict({"embedding": [[1.0, 2.0], [3.0]]})
    with pytest.raises(ValueError, match="same width; rows 0 to 1 do not"):
        HopfieldMemory.from_dataset(ragged, "embedding")
    numbers = datasets.Dataset.from_dict({"embedding": [1.0, 2.0]})
    with pytest.raises(ValueError, match=r"must hold vectors; rows 0 to 1 give the shape \(2,\)"):
        HopfieldMemory.from_dataset(numbers, "embedding")
    missing = datasets.Dataset.from_dict({"embedding": [[1.0, 2.0], None]})
    with pytest.raises(ValueError, match="rows 0 to 1 do not"):
        HopfieldMemory.from_dataset(missing, "embedding")
    with pytest.raises(ValueError, match="no rows"):
        HopfieldMemory.from_dataset(dataset.select([]), "embedding")
    with pytest.raises(ValueError, match="batch_size"):
        HopfieldMemory.from_dataset(dataset, "embedding", batch_size=0)
    nan = datasets.Dataset.from_dict({"embedding": [[1.0, float("nan")]]})
    with pytest.raises(ValueError, match="finite"):
        HopfieldMemory.from_dataset(nan, "embedding")
