# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import math
import subprocess
import sys

import numpy as np
import pytest

from hf_sparse_hopfield.checks import check_choice, check_dropout, check_flag, check_integer, check_number, shown


NOT_NUMBERS = (True, "1", None, [1], 1j, np.array([1, 2]))


def refused(check, *arguments, error=ValueError, **options):
    with pytest.raises(error) as caught:
        check("size", *arguments, **options)
    message = str(caught.value)
    assert message.startswith("size must be ") and message.endswith(f"got {arguments[0]!r}.")
    return message


def test_integer():
    for value, least in ((1, 1), (10**20, 1), (0, 0), (-3, -3)):
        check_integer("size", value, least)
    for value in (0, -1, 1.0, math.nan, *NOT_NUMBERS):
        assert "an integer of at least 1, got" in refused(check_integer, value)
    assert "an integer of at least 2, got" in refused(check_integer, 1, 2)


def test_number():
    for value in (0, 0.0, 1e300, np.float64(1.0)):
        check_number("size", value)
    check_number("size", 1e-300, positive=True)
    for value in (-1e-9, math.inf, math.nan, *NOT_NUMBERS):
        assert "a finite number of at least 0, got" in refused(check_number, value)
        assert "a positive, finite number, got" in refused(check_number, value, positive=True)
    refused(check_number, 0, positive=True)


def test_dropout():
    for value in (0, 0.0, 0.999):
        check_dropout("size", value)
    for value in (1, 1.0, -0.1, math.nan, *NOT_NUMBERS):
        assert "a probability in [0, 1)" in refused(check_dropout, value)


def test_values_are_shown_in_full_or_shortened():
    for value in (None, "sdpa", 1.5, [1.0, 2.0], {"alpha": 1.5}, "x" * 90):
        assert shown(value) == repr(value)
    nested = [1]
    for _ in range(5000):
        nested = [nested, nested]
    for value in ("x" * 10**6, [0] * 10**6, 10**400, {str(i): i for i in range(10**5)}, nested, [["x" * 200] * 9] * 9):
        assert len(shown(value)) <= 300
        with pytest.raises(ValueError, match="size must be an integer"):
            check_integer("size", value if not isinstance(value, int) else float(10**300))


def test_flag():
    check_flag("size", True)
    check_flag("size", False)
    for value in (0, 1, "yes", None, np.bool_(True)):
        assert "True or False, got" in refused(check_flag, value, error=TypeError)


def test_choice():
    check_choice("size", "small", ("small", "large"))
    check_choice("size", "small", {"small": 1})
    for value in ("medium", None, 1, ["small"], "mall", np.array(["small", "large"])):
        assert "one of 'small', 'large', got" in refused(check_choice, value, ("small", "large"))


@pytest.mark.parametrize(
    ("check", "arguments", "error"),
    [(check_integer, (), ValueError), (check_number, (), ValueError), (check_flag, (), TypeError)]
    + [(check_choice, (("small",),), ValueError)],
)
def test_optional(check, arguments, error):
    check("size", None, *arguments, optional=True)
    assert "or None, got" in refused(check, "x", *arguments, error=error, optional=True)


@pytest.mark.parametrize("module", ["checks", "frozen"])
def test_imports_nothing_heavy(module):
    code = f"import sys; sys.path.insert(0, 'hf_sparse_hopfield'); import {module}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert module in loaded and not {"torch", "transformers", "numpy"} & set(loaded)
