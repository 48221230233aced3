# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""One way to make a function a `torch.library` operator, for eager mode, autograd, torch.compile and torch.export."""

from collections.abc import Callable

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
    Give an operator that `library` defines its implementations.

    Args:
        library (`torch.library.Library`): Of the namespace `hf_sparse_hopfield`.
        name (`str`): Of the operator.
        function (`Callable`): What it computes.
        fake (`Callable`): Empty outputs of the right shapes, for tracing.
        differentiate, save (`Callable`, *optional*):
            Its gradient, and what is kept for it, as for `torch.library.register_autograd`. Without them, asking for a
            gradient is an error: torch itself would leave it out, with a warning.
        device (`str`, *optional*, defaults to `"CompositeExplicitAutograd"`): Dispatch key; the default is any device.
    """
    full_name = f"hf_sparse_hopfield::{name}"

    def refuse(ctx, *gradients):
        raise RuntimeError(
            f"{full_name} has no derivative. Second derivatives of retrieval are there with backend='reference'."
        )

    library.impl(name, function, device)
    torch.library.register_fake(full_name, fake, lib=library)
    torch.library.register_autograd(full_name, differentiate or refuse, setup_context=save, lib=library)
