# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Keys and values that lie apart in a larger store, such as a paged cache."""

import torch


def at_places(stored: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """
    Bring keys or values together.

    Args:
        stored (`torch.Tensor` of shape `(batch or 1, kv_heads, rows, dim)`): The store.
        places (`torch.LongTensor` of shape `(batch or 1, keys)`): The row of each key.

    Returns:
        `torch.Tensor` of shape `(batch or 1, kv_heads, keys, dim)`.

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield.backends.places import at_places

    >>> at_places(torch.arange(5.0).view(1, 1, 5, 1), torch.tensor([[4, 0], [2, 1]])).flatten(1)
    tensor([[4., 0.],
            [2., 1.]])

    ```
    """
    if places.shape[0] == 1:
        return stored.index_select(2, places[0])
    if stored.shape[0] == 1:
        return stored[0].transpose(0, 1)[places].transpose(1, 2)
    index = places[:, None, :, None].expand(-1, stored.shape[1], -1, stored.shape[3])
    return stored.expand(places.shape[0], -1, -1, -1).gather(2, index)
