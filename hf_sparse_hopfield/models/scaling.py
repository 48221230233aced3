# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`standardization`: mean and deviation of the features that a model is trained on."""

import torch


def standardization(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """
    Mean and standard deviation of each column, in float64; a column that is constant has deviation 1: it is only centred.

    Args:
        values (`torch.Tensor` of shape `(rows, columns)`): What is trained on: time steps, instances.

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield.models import standardization
    >>> mean, deviation = standardization(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))
    >>> mean.tolist(), deviation.tolist()
    ([2.0, 5.0], [1.0, 1.0])

    ```
    """
    values = values.double()
    # Of a constant column rounding can leave a deviation of 1e-16, and dividing by that makes noise of it.
    varies = values.amax(dim=0) > values.amin(dim=0)
    deviation = values.std(dim=0, correction=0)
    return values.mean(dim=0), torch.where(varies, deviation, torch.ones_like(deviation))
