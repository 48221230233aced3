# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""When a backend may call its own code instead of an operator."""

import torch
from torch import Tensor


_PLAIN_TYPES = (Tensor, torch.nn.Parameter)


def can_bypass_dispatcher(*tensors: float | Tensor | None) -> bool:
    """
    Whether a computation with `tensors` needs only its numbers: no gradient, and no mode, transform or tracer that
    records operators. A backend then calls its own code directly, because going through torch's dispatcher takes
    longer than a short retrieval.

    Args:
        *tensors (`torch.Tensor` or `float`, *optional*): The inputs of the computation.

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield.backends.dispatcher_bypass import can_bypass_dispatcher

    >>> can_bypass_dispatcher(torch.ones(2)), can_bypass_dispatcher(torch.ones(2, requires_grad=True))
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
        if tensor is None or isinstance(tensor, float):
            continue
        if type(tensor) not in _PLAIN_TYPES or tensor.is_meta or (watched and tensor.requires_grad):
            return False
    return True
