# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The reference in the docs is that of the docstrings, and has every public name."""

import hf_sparse_hopfield

from .reference import NAMES, PAGE, markdown, render


def test_the_page_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == render(), "run `python -m tests.docs.reference`"


def test_every_public_name_is_in_it():
    assert {*hf_sparse_hopfield.__all__} - {"__version__"} <= {*NAMES}


def test_sections_become_lists():
    text = "Do it to a [`calibrate`].\n\nArgs:\n    a, b (`int`): One.\n        More.\n\nReturns:\n    `str`: All."
    assert markdown(text).split("\n") == [
        "Do it to a [`calibrate`](#calibrate).",
        "",
        "**Arguments**",
        "",
        "- **`a, b`** (`int`): One.",
        "  More.",
        "",
        "**Returns**",
        "",
        "`str`: All.",
        "",
    ]
