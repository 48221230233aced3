# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""What decoding reads for a token, counted: int8 keys, the keys that are scored exactly, and values."""

import dataclasses

import torch

from ..backends import KeyScreen
from ..backends.native import library
from ..retrieval import retrieve
from .work import Work


def bytes_read(work: Work) -> dict | None:
    """
    Count the bytes that one token reads with a screen.

    Args:
        work ([`Work`]): A decode.

    Returns:
        `dict`: The work, with `bytes` read, those of the int8 keys alone, their `share`, and how many keys are scored and
        values read for a row; `None` without a compiled core.
    """
    if library.missing is not None:
        return None
    query, key, value = work.tensors()
    with torch.no_grad(), library.counted_reads() as counts:
        retrieve(query, key, value, alpha=work.alpha, screen=KeyScreen(key))
    screened, scored, read, ordinary = counts.tolist()
    int8 = key.numel()
    # per key its codes and a scale of two bytes, and per 256 keys three bounds
    total = screened * (work.head_dim + 2 + 12 / 256) + (scored + read) * work.head_dim * key.element_size()
    rows = work.batch * work.heads
    return {
        **dataclasses.asdict(work),
        "label": work.label,
        "bytes": int(total),
        "int8": int8,
        "share": total / int8,
        "scored": scored / rows,
        "read": read / rows,
        "ordinary": ordinary / rows,
    }
