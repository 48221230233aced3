# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Whether a model is recorded for a place that has torch's operators but not ours: ONNX, or a program for other runtimes."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


_asked_for = False


@contextmanager
def plain_torch() -> Iterator[None]:
    """
    A context in which retrieval uses torch's own operators only.

    Export a model inside of it if the program is to run without this package. `torch.onnx.export` needs no context: it is
    recognized. The results are those of the operators of this package; the memory is that of a full attention matrix.

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield import SparseHopfieldPooling
    >>> from hf_sparse_hopfield.functional import plain_torch

    >>> with plain_torch(), torch.no_grad():
    ...     program = torch.export.export(SparseHopfieldPooling(8).eval(), (torch.randn(2, 5, 8),))
    >>> any("hf_sparse_hopfield" in str(node.target) for node in program.graph.nodes)
    False
    ```
    """
    global _asked_for
    before, _asked_for = _asked_for, True
    try:
        yield
    finally:
        _asked_for = before


def only_plain_torch() -> bool:
    """
    Whether retrieval may use torch's own operators only: in [`plain_torch`], and while `torch.onnx.export` records.

    Example:

    ```python
    >>> from hf_sparse_hopfield.functional.plain_torch import only_plain_torch, plain_torch

    >>> with plain_torch():
    ...     only_plain_torch()
    True
    ```
    """
    # torch.onnx is slow to import, and while nothing is exported nobody needs its answer
    if (
        not torch.compiler.is_compiling()
        and torch._C._get_tracing_state() is not None
        and torch.onnx.is_in_onnx_export()
    ):
        raise RuntimeError(
            "torch.onnx.export(dynamo=False) cannot record retrieval, whose graph it gets wrong. Use dynamo=True."
        )
    return _asked_for or (torch.compiler.is_exporting() and _is_recorded_for_onnx())


def _is_recorded_for_onnx() -> bool:
    return torch.onnx.is_in_onnx_export()


# torch asks while it traces and does not record the question. `torch.compiler.assume_constant_result` sets the same mark, but
# imports the compiler, which takes a second.
_is_recorded_for_onnx._dynamo_marked_constant = True  # type: ignore[attr-defined]
