# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Checks of vectors and places; what users see of them is tested with the memories."""

import pytest
import torch

from hf_sparse_hopfield.layers.memory.vectors import checked_rows, chosen_places, to_unit_length


@pytest.mark.parametrize(
    ("indices", "expected"),
    [
        (2, [2]),
        (-1, [4]),
        ([3, 0, 3, -5], [0, 3]),
        (range(2), [0, 1]),
        ([], []),
        (torch.tensor([[1], [4]]), [1, 4]),
        (torch.tensor([True, False, False, True, False]), [0, 3]),
    ],
)
def test_chosen_places(indices, expected):
    assert chosen_places(indices, 5).tolist() == expected


def test_unit_length_in_half_precision():
    vectors = torch.full((2, 100), 300.0, dtype=torch.float16)  # squares overflow
    torch.testing.assert_close(to_unit_length(vectors).float().norm(dim=1), torch.ones(2), atol=1e-3, rtol=0)


def test_rows_are_copied():
    rows = torch.arange(3)
    checked = checked_rows(rows, 3)
    rows.zero_()
    assert checked.tolist() == [0, 1, 2]
