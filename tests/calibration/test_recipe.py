# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import dataclasses
import subprocess
import sys

import pytest

from hf_sparse_hopfield.calibration.recipe import (
    REFINEMENT,
    SPARSEMAX_REFINEMENT,
    CalibrationOptions,
    Refinement,
    usual_batches,
)


def test_refinement_is_decided_by_the_recipe_or_the_user():
    assert (REFINEMENT, SPARSEMAX_REFINEMENT) == ((32, 0.05), (64, 0.1))
    support = {"objective": "support", "target_support": 0.1}
    for options, mean_alpha, expected in (
        ({}, 1.5, (32, 0.05)),
        ({}, 1.75, (32, 0.05)),
        ({}, 1.76, (64, 0.1)),
        ({"alpha": "search"}, None, (32, 0.05)),
        ({"budget": 0.02}, None, (0, 0.05)),
        (support, 2.0, (0, 0.1)),
        ({"refine_steps": 0}, 2.0, (0, 0.1)),
        ({"refine_steps": 3}, 2.0, (3, 0.1)),
        ({"refine_steps": 3, "budget": 0.02}, None, (3, 0.05)),
        ({"refine_steps": 3, **support}, 1.5, (3, 0.05)),
        ({"learning_rate": 0.2}, 2.0, (64, 0.2)),
    ):
        refinement = CalibrationOptions(**options).refinement(mean_alpha)
        assert refinement == expected
        assert CalibrationOptions(**options).refines == (refinement.steps > 0)


def test_every_step_of_refinement_has_a_batch():
    assert usual_batches(REFINEMENT) == 32 and usual_batches(SPARSEMAX_REFINEMENT) == 64
    assert usual_batches(Refinement(0, 0.05)) == 32 and usual_batches(Refinement(200, 0.05)) == 200


def test_options_cannot_be_changed_and_are_checked_again_when_replaced():
    options = CalibrationOptions(alpha=1.5)
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.alpha = 2.0
    assert options.replaced({"rows": 8}) == CalibrationOptions(alpha=1.5, rows=8)
    with pytest.raises(ValueError, match="rows must be an integer of at least 1, got 0"):
        options.replaced({"rows": 0})
    with pytest.raises(ValueError, match="budget=0.1 searches alpha, .* got 1.5"):
        options.replaced({"budget": 0.1})
    known = ", ".join(field.name for field in dataclasses.fields(options))
    with pytest.raises(TypeError, match=f"no option 'row'; its options are {known}"):
        options.replaced({"row": 8})


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"alpha": [1.5]}, r"alpha must lie in \[1, 2\].* or be 'search' or None, got \[1.5\]"),
        ({"rows": None}, "rows must be an integer of at least 1, got None"),
        ({"rows": 2.0}, "rows must be an integer"),
        ({"refine_steps": True}, "refine_steps must be an integer of at least 0 or None, got True"),
        ({"max_error": None}, "max_error must be a positive, finite number, got None"),
        ({"max_error": float("inf")}, "max_error must be a positive, finite number"),
        ({"learning_rate": "fast"}, "learning_rate must be a positive, finite number or None, got 'fast'"),
        ({"budget": float("nan")}, "budget must be a positive, finite number"),
        ({"objective": "support", "target_support": "half"}, "target_support must lie in"),
    ],
)
def test_wrong_options_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        CalibrationOptions(**wrong)


def test_the_recipe_needs_no_torch():
    program = "import sys; import hf_sparse_hopfield.cli.arguments; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
