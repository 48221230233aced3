# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`standardization`: mean and standard deviation of training data."""

import torch


def standardization(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """
    Mean and standard deviation of each column, in float64. A constant column gets deviation 1, so that it is only centered.

    Args:
        values (`torch.Tensor` of shape `(rows, columns)`): Training data, such as time steps or instances.

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
    # Rounding can leave a constant column a deviation of 1e-16, and dividing by that gives noise.
    varies = values.amax(dim=0) > values.amin(dim=0)
    deviation = values.std(dim=0, correction=0)
    return values.mean(dim=0), torch.where(varies, deviation, torch.ones_like(deviation))
