# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The heads of a process; what they need other processes for is tested with `tensor.py` and `sequence.py`."""

import torch

from hf_sparse_hopfield.parallel.heads import LocalHeads


def test_one_value_serves_all_heads_and_several_are_sliced():
    heads = LocalHeads(2, 4, None, sum_gradients=False)
    assert heads.take(1.5) == 1.5
    assert heads.take(torch.tensor(1.5)) == 1.5
    values = torch.arange(8.0, requires_grad=True)
    taken = heads.take(values)
    assert taken.tolist() == [2, 3]
    taken.sum().backward()
    assert values.grad.tolist() == [0, 0, 1, 1, 0, 0, 0, 0]
