# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import sys

import pytest
import torch

from hf_sparse_hopfield.comparison.peak_memory import peak_memory


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="the system does not report peak memory"),
]


def test_peak_memory(language_models):
    logits = 256 * 64 * 40 * 4  # bytes, of a vocabulary of more than 40 words
    inputs = {"input_ids": torch.full((256, 64), 5)}
    assert logits < peak_memory(language_models[1], "text-generation", inputs, "float32") < 2**30


def test_a_failure_is_told(language_models):
    inputs = {"input_ids": torch.full((1, 4), 10**6)}  # no such token
    with pytest.raises(RuntimeError, match="the peak memory of .* failed: .*IndexError"):
        peak_memory(language_models[1], "text-generation", inputs, "float32")
