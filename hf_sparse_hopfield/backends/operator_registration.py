# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Registers functions as `torch.library` operators for eager mode, autograd, torch.compile and torch.export."""

from collections.abc import Callable
from typing import Any

import torch


def register_operator(
    library: torch.library.Library,
    name: str,
    function: Callable,
    fake: Callable,
    differentiate: Callable | None = None,
    save: Callable | None = None,
    device: str = "CompositeExplicitAutograd",
) -> None:
    """
    Register the implementations of an operator that `library` defines.

    Args:
        library (`torch.library.Library`): The library, of the namespace `hf_sparse_hopfield`.
        name (`str`): Name of the operator.
        function (`Callable`): The computation.
        fake (`Callable`): Returns empty outputs of the right shapes, for tracing.
        differentiate, save (`Callable`, *optional*):
            The gradient, and what to save for it, as for `torch.library.register_autograd`. Without them, asking for a
            gradient raises an error; torch alone would only warn and leave the gradient out.
        device (`str`, *optional*, defaults to `"CompositeExplicitAutograd"`):
            Dispatch key; the default serves any device.
    """
    full_name = f"hf_sparse_hopfield::{name}"

    def refuse(ctx: Any, *gradients: Any) -> None:
        raise RuntimeError(
            f"{full_name} has no derivative. For second derivatives of retrieval use backend='reference'."
        )

    library.impl(name, function, device)
    torch.library.register_fake(full_name, fake, lib=library)
    torch.library.register_autograd(full_name, differentiate or refuse, setup_context=save, lib=library)
