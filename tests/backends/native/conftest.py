# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Fixtures of the tests of the compiled core."""

import pytest

from hf_sparse_hopfield.backends.native import library


@pytest.fixture(params=library.LEVELS)
def level(request):
    """One instruction set after the other, as far as this processor has them."""
    number = library.LEVELS.index(request.param)
    if library.limit_level(number) != request.param:
        library.limit_level(-1)
        pytest.skip(f"this processor has no {request.param}")
    yield request.param
    library.limit_level(-1)
