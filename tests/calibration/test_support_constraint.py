# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import math

import pytest
import torch

from hf_sparse_hopfield.calibration.support_constraint import SupportConstraint
from hf_sparse_hopfield.layers import RetrievalParameters


def _modules():
    return {"a": RetrievalParameters(2, learn_beta=True), "b": RetrievalParameters(3, learn_beta=True)}


def test_the_weight_rises_beyond_the_limit_and_falls_below_it():
    modules = _modules()
    constraint = SupportConstraint(modules, max_support=0.1)
    assert math.isnan(constraint.support())
    constraint.adjust(0.0)  # nothing is known yet
    before = float(constraint.log_weight)
    constraint.note({"a": torch.full((2,), 0.3), "b": torch.full((3,), 0.3)})
    assert constraint.support() == pytest.approx(0.3)
    constraint.adjust(0.0)
    above = float(constraint.log_weight)
    assert above > before
    for _ in range(200):
        constraint.note({"a": torch.full((2,), 0.01), "b": torch.full((3,), 0.01)})
    constraint.adjust(0.0)
    assert constraint.support() == pytest.approx(0.01, rel=1e-3) and float(constraint.log_weight) < above


def test_a_budget_leaves_room_for_sparsity():
    constraint = SupportConstraint(_modules(), budget=0.1)
    before = float(constraint.log_weight)
    constraint.adjust(0.05)
    assert float(constraint.log_weight) > before
    constraint.adjust(5.0)
    constraint.adjust(5.0)
    assert float(constraint.log_weight) < before


def test_the_penalty_pulls_beta_up_where_support_is_large():
    modules = _modules()
    constraint = SupportConstraint(modules, max_support=0.1)
    constraint.note({"a": torch.tensor([0.5, 0.0]), "b": torch.full((3,), 0.25)})
    penalty = constraint.penalty(modules)
    assert float(penalty) == pytest.approx(0.1 * (0.5 + 3 * 0.25) / 5)
    penalty.backward()
    gradient = modules["a"].log_beta.grad
    assert gradient[0] < 2 * modules["b"].log_beta.grad[0] + 1e-9 < 0 and gradient[1] == 0
