# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import math

import pytest
import torch

from hf_sparse_hopfield.functional.checks import check_alpha, check_beta


def test_valid_values_pass():
    for alpha in (1, 1.5, 2.0, torch.tensor([1.0, 2.0]), torch.empty(0)):
        check_alpha(alpha)
    for beta in (1, 1e-3, torch.tensor([0.1, 5.0])):
        check_beta(beta)


@pytest.mark.parametrize(
    ("check", "value", "error", "message"),
    [
        (check_alpha, 0.9, ValueError, r"alpha must lie in \[1, 2\]"),
        (check_alpha, math.nan, ValueError, "alpha must lie in"),
        (check_alpha, torch.tensor([1.0, 2.5]), ValueError, r"values in \[1.0, 2.5\]"),
        (check_alpha, True, TypeError, "alpha must be a float"),
        (check_alpha, torch.tensor([1]), TypeError, "int64"),
        (check_beta, 0.0, ValueError, "beta must be positive and finite, got 0.0"),
        (check_beta, math.inf, ValueError, "beta must be positive and finite"),
        (check_beta, torch.tensor([1.0, -1.0]), ValueError, r"values in \[-1.0, 1.0\]"),
        (check_beta, "1", TypeError, "beta must be a float"),
    ],
)
def test_others_are_refused(check, value, error, message):
    with pytest.raises(error, match=message):
        check(value)
