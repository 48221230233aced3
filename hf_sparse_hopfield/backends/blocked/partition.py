# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The partition of a problem into blocks."""

from .layout import Block, Layout
from .settings import Settings


# Scores of a block: enough to hide the cost of calling some hundred operators. Queries of a block, with and without a
# diagonal: scores beyond the diagonal are wasted, but fewer and larger matrix products are faster.
_BLOCK_ENTRIES = 3 << 20
_BLOCK_QUERIES = 256
_FULL_BLOCK_QUERIES = 1024
# Key ranges are multiples of this, so that strided groups of up to 16 keys cover them.
UNIT = 128


def is_always_dense(layout: Layout, settings: Settings) -> bool:
    """Whether no block can have a small support worth finding: rows are short, or alpha is 1."""
    return layout.keys < UNIT or (settings.alpha is None and settings.alpha_value == 1.0)


def key_unit(layout: Layout, settings: Settings) -> int:
    """The number that the bounds of key ranges are multiples of."""
    return 1 if is_always_dense(layout, settings) else UNIT


def partition(layout: Layout, settings: Settings) -> list[Block]:
    """
    Divide the rows into blocks. The forward and the backward pass get the same blocks.

    Args:
        layout ([`Layout`]): The sizes of the problem.
        settings ([`Settings`]): The causal order and the window bound the keys that a block sees.
    """
    if 0 in (layout.batch, layout.kv_heads, layout.queries, layout.keys):
        return []
    blocks = []
    unit, window = key_unit(layout, settings), settings.window
    limit = _BLOCK_ENTRIES // (layout.groups * layout.keys) // 16 * 16
    most = _BLOCK_QUERIES if settings.is_causal else _FULL_BLOCK_QUERIES
    count = max(1 if layout.groups * layout.keys >= _BLOCK_ENTRIES else 16, min(most, limit))
    shift = layout.keys - layout.queries
    for start in range(0, layout.queries, count):
        end = min(start + count, layout.queries)
        first, stop = 0, layout.keys
        if settings.is_causal:
            stop = min(stop, end + shift)
            first = max(0, start + shift - window + 1) if window else 0
            if stop <= first:
                continue  # no query of the block sees a key
        first, stop = first // unit * unit, -(-stop // unit) * unit
        at_once = max(1, _BLOCK_ENTRIES // (layout.groups * (end - start) * (stop - first)))
        batches = max(1, at_once // layout.kv_heads)
        for b in range(0, layout.batch, batches):
            for h in range(0, layout.kv_heads, min(at_once, layout.kv_heads)):
                heads = slice(h, min(h + at_once, layout.kv_heads))
                blocks.append(Block(slice(b, min(b + batches, layout.batch)), heads, slice(start, end), first, stop))
    return blocks
