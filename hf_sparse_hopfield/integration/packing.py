# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Sequences packed into one row see only themselves.

Collators say in three ways which tokens belong together: by cumulative lengths (`cu_seq_lens_q`, `cu_seq_lens_k`), by a
number for each token (`seq_idx`), or by positions that start again (`position_ids`). transformers makes a mask from positions
only, and only for a causal model without a cache, so a model in evaluation mode would mix the sequences of a row.
"""

from dataclasses import dataclass

import torch
from transformers.masking_utils import find_packed_sequence_indices


@dataclass
class Packing:
    """
    What a call says about the sequences in a row. All is optional.

    Args:
        cu_seq_lens_q, cu_seq_lens_k (`torch.Tensor` of shape `(sequences + 1,)`): Cumulative lengths.
        seq_idx (`torch.Tensor` of shape `(batch, tokens)`): The number of the sequence of each token.
        position_ids (`torch.Tensor` of shape `(batch, tokens)`): The positions of the tokens in their sequences.

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield.integration.packing import Packing

    >>> Packing(seq_idx=torch.tensor([[0, 0, 1]])).same_sequence(1, 3, 3).int()
    tensor([[[[1, 1, 0],
              [1, 1, 0],
              [0, 0, 1]]]], dtype=torch.int32)

    ```
    """

    cu_seq_lens_q: torch.Tensor | None = None
    cu_seq_lens_k: torch.Tensor | None = None
    seq_idx: torch.Tensor | None = None
    position_ids: torch.Tensor | None = None

    def same_sequence(self, batch: int, queries: int, keys: int) -> torch.Tensor | None:
        """
        The mask of the keys in the sequence of each query; `None` if each row is one sequence.

        Args:
            batch, queries, keys (`int`): Sizes of the scores.

        Returns:
            `torch.BoolTensor` broadcastable to `(batch, 1, queries, keys)`, or `None`.
        """
        mask = None
        if self.cu_seq_lens_q is not None:
            mask = self._by_lengths(batch, queries, keys)
        if self.seq_idx is not None:
            by_number = self._by_number(batch, queries, keys)
            mask = by_number if mask is None else mask & by_number
        return self._by_position(batch, queries, keys) if mask is None else mask

    def _by_lengths(self, batch: int, queries: int, keys: int) -> torch.Tensor:
        if batch > 1:
            raise ValueError(
                f"cu_seq_lens_q holds the lengths of the sequences in one row, but the batch has {batch} rows. Pass one row, "
                "as DataCollatorWithFlattening makes it."
            )
        starts_q: torch.Tensor = self.cu_seq_lens_q  # type: ignore[assignment]  # checked by the caller
        starts_k = starts_q if self.cu_seq_lens_k is None else self.cu_seq_lens_k
        return _equal(_numbers(starts_q, queries), _numbers(starts_k, keys))

    def _by_number(self, batch: int, queries: int, keys: int) -> torch.Tensor:
        numbers: torch.Tensor = self.seq_idx  # type: ignore[assignment]  # checked by the caller
        numbers = numbers if numbers.ndim > 1 else numbers[None]
        if numbers.shape[0] not in (1, batch) or numbers.shape[1:] != (queries,) or queries != keys:
            raise ValueError(
                f"seq_idx of shape {tuple(numbers.shape)} must number the tokens of all {batch} rows, but there are {queries} "
                f"queries and {keys} keys. Packed sequences can use no cache: pass use_cache=False."
            )
        return _equal(numbers, numbers)

    def _by_position(self, batch: int, queries: int, keys: int) -> torch.Tensor | None:
        positions = self.position_ids
        if positions is None or positions.ndim != 2 or queries != keys or positions.shape[1] != queries:
            return None
        numbers = find_packed_sequence_indices(positions)
        return None if numbers is None else _equal(numbers, numbers)


def _numbers(starts: torch.Tensor, length: int) -> torch.Tensor:
    """The number of the sequence of each token, from cumulative lengths."""
    position = torch.arange(length, device=starts.device, dtype=starts.dtype)
    return torch.bucketize(position, starts[1:].contiguous(), right=True)[None]


def _equal(queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    return (queries[:, :, None] == keys[:, None, :])[:, None]
