# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Products of sparse matrices in compressed rows: the fastest in plain PyTorch for a handful of entries per row."""

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
    Weighted sums of rows of a table: the product of a sparse matrix and a dense one.

    Args:
        indices (`torch.IntTensor` of shape `(n,)`): Rows of `table`, sum by sum.
        table (`torch.Tensor` of shape `(size, width)`): The vectors to sum.
        counts (`torch.Tensor` of shape `(rows,)`): Number of indices of each sum.
        weights (`torch.Tensor` of shape `(n,)`): Weight of each index.
    """
    offsets = _offsets(counts, indices.dtype)
    return F.embedding_bag(indices, table, offsets, mode="sum", per_sample_weights=weights, include_last_offset=True)


@functools.cache
def _suppress_beta_warning() -> None:
    """Suppress torch's warning that compressed rows are in beta, which it gives once per process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.sparse_csr_tensor(torch.zeros(2, dtype=torch.int32), torch.empty(0, dtype=torch.int32), [], (1, 1))


def products(indices: Tensor, table: Tensor, counts: Tensor, vectors: Tensor) -> Tensor:
    """
    The entries of `vectors @ table.T` at given places.

    Args:
        indices (`torch.IntTensor` of shape `(n,)`): Rows of `table`, row by row of `vectors`.
        table (`torch.Tensor` of shape `(size, width)`): One factor.
        counts (`torch.Tensor` of shape `(rows,)`): Number of indices of each row.
        vectors (`torch.Tensor` of shape `(rows, width)`): The other factor.
    """
    if vectors.device.type not in ("cpu", "cuda"):
        return gathered_products(indices, table, counts, vectors)
    _suppress_beta_warning()
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
    """[`products`] for devices without a sampled product; `at_once` entries at a time bound the memory."""
    rows = torch.repeat_interleave(torch.arange(counts.numel(), device=counts.device), counts)
    pieces = zip(rows.split(at_once), indices.split(at_once), strict=True)
    return torch.cat([(vectors.index_select(0, r) * table.index_select(0, i)).sum(-1) for r, i in pieces])
