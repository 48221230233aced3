# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""What decoding reads is counted."""

import pytest

from hf_sparse_hopfield.backends.native import library
from hf_sparse_hopfield.benchmark import Work
from hf_sparse_hopfield.benchmark.reads import bytes_read


@pytest.mark.skipif(library.missing is not None, reason=f"no compiled core: {library.missing}")
def test_a_decode_reads_little_more_than_the_int8_keys():
    read = bytes_read(Work("decode", 1, 8, 8192, 2.0, 8, kv_heads=2))
    assert 1.03 < read["share"] < 1.15 and read["ordinary"] == 0
    assert 4 < read["read"] <= read["scored"] < 40
    half = bytes_read(Work("decode", 1, 8, 8192, 2.0, 8, kv_heads=2, dtype="bfloat16"))
    assert half["bytes"] < read["bytes"]
