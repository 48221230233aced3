# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""When a backend may do without torch's dispatcher."""

import torch
from torch import Tensor


_PLAIN_TYPES = (Tensor, torch.nn.Parameter)


def is_direct(*tensors: float | Tensor | None) -> bool:
    """
    Whether nothing but the numbers is wanted of a computation with `tensors`: no gradient, and nobody who records,
    transforms or traces operators. Then a backend calls its own code at once, for going through an operator takes longer
    than a short retrieval does.

    Args:
        *tensors (`torch.Tensor`, *optional*): What is computed with; anything that is no tensor does not matter.

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield.backends.dispatch import is_direct

    >>> is_direct(torch.ones(2)), is_direct(torch.ones(2, requires_grad=True))
    (True, False)
    ```
    """
    if torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None:
        return False
    if torch._C._len_torch_dispatch_stack() or torch._C._functorch.maybe_current_level() is not None:
        return False
    if torch.autograd.forward_ad._current_level >= 0:
        return False
    watched = torch.is_grad_enabled()
    for tensor in tensors:
        if not isinstance(tensor, Tensor):
            continue
        if type(tensor) not in _PLAIN_TYPES or tensor.is_meta or (watched and tensor.requires_grad):
            return False
    return True
