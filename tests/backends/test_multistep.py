# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Updates before the read-out."""

import pytest
import torch

from hf_sparse_hopfield.backends import RetrievalProblem
from hf_sparse_hopfield.backends.multistep import last_state


def problem(state: torch.Tensor, **options) -> RetrievalProblem:
    return RetrievalProblem(state, state, state, scaling=1.0, **options)


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_one_update_less_than_steps(steps):
    state = torch.randn(1, 1, 3, 2)
    assert torch.equal(
        last_state(problem(state, steps=steps), state, lambda x: x + 1), sum([1.0] * (steps - 1), state)
    )


def test_rows_stop_on_their_own():
    state = torch.tensor([8.0, 1.0]).view(1, 1, 2, 1)
    result = last_state(problem(state, steps=4, tolerance=0.75), state, lambda x: x / 2)
    assert result.flatten().tolist() == [1.0, 0.5]


def test_a_row_with_nan_keeps_moving():
    state = torch.tensor([torch.nan, 1.0]).view(1, 1, 2, 1)
    result = last_state(problem(state, steps=3, tolerance=0.1), state, lambda x: x)
    assert result[0, 0, 0].isnan() and result[0, 0, 1] == 1
