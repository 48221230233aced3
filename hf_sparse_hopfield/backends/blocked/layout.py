# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The layout of rows: query heads grouped by the kv head they share, and the part of a tensor that a block covers."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Block:
    """
    Rows that are computed together: all query heads of some kv heads, for a range of queries.

    Args:
        batches, kv_heads, queries (`slice`): The rows. A block has whole batch entries, or some heads of one.
        first, stop (`int`): The range of keys that any of the rows can see; `stop` may lie beyond the last key.
    """

    batches: slice
    kv_heads: slice
    queries: slice
    first: int
    stop: int


@dataclass(frozen=True)
class Layout:
    """
    The sizes of a problem. A *grouped* tensor has the shape `(batch, kv_heads, groups, queries, width)`.

    Args:
        batch, kv_heads, groups, queries, keys (`int`): The sizes; `groups` query heads share a kv head.
    """

    batch: int
    kv_heads: int
    groups: int
    queries: int
    keys: int

    @classmethod
    def of(cls, query: Tensor, key: Tensor) -> "Layout":
        """The layout of a query `(batch, heads, queries, head_dim)` and a key `(batch, kv_heads, keys, head_dim)`."""
        batch, heads, queries, _ = query.shape
        kv_heads, keys = key.shape[1:3]
        return cls(batch, kv_heads, heads // kv_heads, queries, keys)

    @property
    def row_shape(self) -> tuple[int, int, int, int]:
        """Shape of a grouped tensor without its last dimension."""
        return self.batch, self.kv_heads, self.groups, self.queries

    def grouped(self, tensor: Tensor) -> Tensor:
        """Split the heads of `(batch, heads, n, m)`, any of which may be 1, into kv heads and groups."""
        heads = (self.kv_heads, self.groups) if tensor.shape[1] == self.kv_heads * self.groups else (1, 1)
        return tensor.unflatten(1, heads)

    def rows(self, tensor: Tensor, block: Block) -> Tensor:
        """The rows of a block, `(kv heads of the block, groups * queries, m)`, of a grouped tensor."""
        part = tensor[block.batches, block.kv_heads, :, block.queries]
        return part.reshape(-1, part.shape[2] * part.shape[3], part.shape[4])

    def store(self, tensor: Tensor, block: Block, rows: Tensor) -> None:
        """Write the rows of a block to a grouped tensor: the inverse of [`Layout.rows`]."""
        part = tensor[block.batches, block.kv_heads, :, block.queries]
        part.copy_(rows.view(part.shape))

    def stored(self, table: Tensor, block: Block) -> Tensor:
        """The stored patterns that a block sees, `(kv heads, keys, m)`, of a table `(batch, kv_heads, keys, m)`."""
        return table[block.batches, block.kv_heads, block.first : block.stop].flatten(0, 1)

    def part(self, tensor: Tensor, block: Block) -> Tensor:
        """The part of a grouped mask or bias that a block covers; dimensions of size 1 stay."""
        cuts = (block.batches, block.kv_heads, slice(None), block.queries, slice(block.first, block.stop))
        return tensor[tuple(cut if size > 1 else slice(None) for cut, size in zip(cuts, tensor.shape, strict=True))]

    def grouped_scores(self, scores: Tensor, block: Block) -> Tensor:
        """View the scores of a block, `(kv heads, groups * queries, keys)`, with all five dimensions of a bias."""
        batches, queries = (cut.stop - cut.start for cut in (block.batches, block.queries))
        return scores.view(batches, -1, self.groups, queries, scores.shape[-1])

    def key_count(self, block: Block) -> int:
        """Number of keys in the range of a block, without padding."""
        return min(block.stop, self.keys) - block.first

    def score_count(self, block: Block) -> int:
        """Number of scores of a block, with padding."""
        heads = (block.batches.stop - block.batches.start) * (block.kv_heads.stop - block.kv_heads.start)
        return heads * self.groups * (block.queries.stop - block.queries.start) * (block.stop - block.first)
