# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""What is timed on a GPU."""

from hf_sparse_hopfield.benchmark.gpu.devices import InterpreterDevice
from hf_sparse_hopfield.benchmark.gpu.works import KEYS, SIZES, works


class Gpu(InterpreterDevice):
    tiny = False


def test_sizes_dtypes_and_inputs():
    every = [work for work, _ in works(Gpu())]
    for kind in ("forward", "training"):
        chosen = [work for work in every if work.kind == kind]
        assert {(w.batch, w.heads, w.length, w.head_dim) for w in chosen} == set(SIZES)
        assert {(w.dtype, w.alpha, w.inputs, w.is_causal) for w in chosen if w.length == 4096} >= {
            (dtype, alpha, inputs, True)
            for dtype in ("bfloat16", "float32")
            for alpha in (2.0, 1.5)
            for inputs in ("sharp", "local", "plain")
        }
        assert any(not w.is_causal for w in chosen)
    assert {w.length for w in every if w.kind == "decode"} == set(KEYS)
    assert len(set(every)) == len(every)
    assert len(works(Gpu(), quick=True)) < len(every) / 2


def test_methods():
    for work, names in works(Gpu()):
        assert "triton" in names
        assert ("screened" in names) == (work.kind == "decode") == ("adasplash" not in names)
        assert ("blocked" in names) == (work.kind != "decode" and work.length <= 1024)
