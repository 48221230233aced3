# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The answer by other means: a model's own eager attention, with softmax swapped for entmax by hand."""

from contextlib import contextmanager
from unittest import mock

import torch

from hf_sparse_hopfield import entmax


@contextmanager
def entmax_for_softmax(alpha: float = 2.0, dimensions: tuple[int, ...] = (4,)):
    """
    For the time of the context, softmax over scores is entmax.

    Args:
        alpha (`float`, *optional*, defaults to 2.0): Member of the entmax family.
        dimensions (`tuple[int, ...]`, *optional*): How many dimensions scores have. Routers have fewer.
    """

    def replaced(holder):
        softmax = holder.softmax

        def entmax_or_softmax(input, dim=None, _stacklevel=3, dtype=None):
            if input.ndim not in dimensions:
                return softmax(input, dim=dim, dtype=dtype)
            scores = input if dtype is None else input.to(dtype)
            return entmax(scores, alpha=alpha, dim=dim, mask=scores > torch.finfo(scores.dtype).min / 2)

        return mock.patch.object(holder, "softmax", entmax_or_softmax)

    with replaced(torch.nn.functional), replaced(torch), replaced(torch.Tensor):
        yield
