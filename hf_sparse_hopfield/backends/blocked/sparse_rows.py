# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Products of sparse matrices in compressed rows: the fastest that plain PyTorch has for a handful of entries a row."""

import functools
import warnings

import torch
import torch.nn.functional as F
from torch import Tensor


def _offsets(counts: Tensor, dtype: torch.dtype) -> Tensor:
    offsets = torch.zeros(counts.numel() + 1, dtype=dtype, device=counts.device)
    torch.cumsum(counts, 0, out=offsets[1:])
    return offsets


def weighted_sums(indices: Tensor, table: Tensor, counts: Tensor, weights: Tensor) -> Tensor:
    """
    Sums of weighted rows of a table: the product of a sparse matrix and a dense one.

    Args:
        indices (`torch.IntTensor` of shape `(n,)`): Rows of `table`, for one sum after the other.
        table (`torch.Tensor` of shape `(size, width)`): What is added up.
        counts (`torch.Tensor` of shape `(rows,)`): How many indices each sum has.
        weights (`torch.Tensor` of shape `(n,)`): Their weights.
    """
    offsets = _offsets(counts, indices.dtype)
    return F.embedding_bag(indices, table, offsets, mode="sum", per_sample_weights=weights, include_last_offset=True)


@functools.cache
def _hush() -> None:
    """torch warns once a process that compressed rows are in beta: no news to the user of an attention."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.sparse_csr_tensor(torch.zeros(2, dtype=torch.int32), torch.empty(0, dtype=torch.int32), [], (1, 1))


def products(indices: Tensor, table: Tensor, counts: Tensor, vectors: Tensor) -> Tensor:
    """
    The entries of `vectors @ table.T` at the given places.

    Args:
        indices (`torch.IntTensor` of shape `(n,)`): Rows of `table`, for one row of `vectors` after the other.
        table (`torch.Tensor` of shape `(size, width)`): What is multiplied.
        counts (`torch.Tensor` of shape `(rows,)`): How many indices each row has.
        vectors (`torch.Tensor` of shape `(rows, width)`): What it is multiplied with.
    """
    if vectors.device.type not in ("cpu", "cuda"):
        return gathered_products(indices, table, counts, vectors)
    _hush()
    pattern = torch.sparse_csr_tensor(
        _offsets(counts, indices.dtype),
        indices,
        vectors.new_zeros(indices.numel()),
        (counts.numel(), table.shape[0]),
        check_invariants=False,
    )
    return torch.sparse.sampled_addmm(pattern, vectors, table.t(), beta=0.0).values()


def gathered_products(
    indices: Tensor, table: Tensor, counts: Tensor, vectors: Tensor, at_once: int = 1 << 16
) -> Tensor:
    """[`products`] for devices that have no sampled product of their own; `at_once` bounds the memory it takes."""
    rows = torch.repeat_interleave(torch.arange(counts.numel(), device=counts.device), counts)
    pieces = zip(rows.split(at_once), indices.split(at_once), strict=True)
    return torch.cat([(vectors.index_select(0, r) * table.index_select(0, i)).sum(-1) for r, i in pieces])
