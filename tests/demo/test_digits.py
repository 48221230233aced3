# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import torch

from hf_sparse_hopfield.demo import digit_patterns
from hf_sparse_hopfield.demo.digits import recall_digits


def test_patterns_are_ten_different_pictures():
    patterns = digit_patterns()
    assert patterns.shape == (10, 35) and set(patterns.unique().tolist()) == {-1.0, 1.0}
    assert len(torch.unique(patterns, dim=0)) == 10


def test_the_sparser_memory_recalls_better_with_fewer_patterns(tmp_path):
    sparse, entmax15, dense = recall_digits(tmp_path / "digits.png", seed=0)
    assert (tmp_path / "digits.png").read_bytes().startswith(b"\x89PNG")
    assert sparse[1] < entmax15[1] < dense[1] and sparse[2] > dense[2] and sparse[3] < entmax15[3] < dense[3] == 10
