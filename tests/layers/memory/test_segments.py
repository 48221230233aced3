# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Segments: patterns in one tensor, which grow, lose some, and are merged with others."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from hf_sparse_hopfield.layers.memory.segments import Segment, merged


def segment_of(first: int, count: int, removed: int = 0) -> Segment:
    rows = torch.arange(first, first + count)
    segment = Segment(rows[:, None].float().expand(count, 3).clone(), rows)
    segment.file = "patterns"  # as if saved: removing does not move the rest together
    if removed:
        segment.remove(torch.arange(removed))
    return segment


@given(sizes=st.lists(st.tuples(st.integers(1, 200), st.floats(0, 0.9)), min_size=1, max_size=12))
def test_merging_keeps_the_patterns_and_their_order(sizes):
    segments, first = [], 0
    for count, share in sizes:
        segments.append(segment_of(first, count, int(share * count)))
        first += count
    result = merged(segments)
    for number in (0, 1):
        before = torch.cat([segment.remaining()[number] for segment in segments])
        after = torch.cat([segment.remaining()[number] for segment in result])
        assert torch.equal(before, after)
    lengths = [len(segment) for segment in result]
    assert all(2 * later <= earlier for earlier, later in zip(lengths, lengths[1:], strict=False))
    assert all(2 * segment.removed_count <= len(segment.rows) for segment in result)


def test_what_fits_stays_as_it_is():
    segments = [segment_of(0, 100, 20), segment_of(100, 30)]
    assert merged(segments) == segments


def test_supports_of_no_patterns_and_no_queries():
    segment = segment_of(0, 5)
    assert segment.supports(torch.zeros(0, 3), 2.0, 1.0, True).shape[0] == 0
    empty = Segment(torch.empty(0, 3), torch.arange(0))
    assert empty.supports(torch.ones(4, 3), 2.0, 1.0, True).shape == (4, 0)
    segment.remove(torch.arange(5))
    assert (segment.supports(torch.ones(4, 3), 2.0, 1.0, True) == -1).all()
