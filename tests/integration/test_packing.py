# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Sequences packed into one row. Whole models are in `tests/roads/test_keywords.py`."""

import pytest
import torch

from hf_sparse_hopfield.integration.packing import Packing, both

from ..tiny_models import tiny_inputs, tiny_model, tiny_output


BLOCKS = torch.block_diag(torch.ones(2, 2), torch.ones(3, 3)).bool()[None, None]


def same_sequence(packing: Packing) -> torch.Tensor:
    queries, keys = packing.segments(1, 5, 5)
    return (queries[:, :, None] == keys[:, None])[:, None]


@pytest.mark.parametrize(
    "packing",
    [
        Packing(cu_seq_lens_q=torch.tensor([0, 2, 5])),
        Packing(cu_seq_lens_q=torch.tensor([0, 2, 5]), cu_seq_lens_k=torch.tensor([0, 2, 5])),
        Packing(seq_idx=torch.tensor([[0, 0, 1, 1, 1]])),
        Packing(seq_idx=torch.tensor([0, 0, 1, 1, 1])),
        Packing(position_ids=torch.tensor([[0, 1, 0, 1, 2]])),
        Packing(position_ids=torch.tensor([[2, 3, 2, 3, 4]])),
        Packing(torch.tensor([0, 5]), None, torch.tensor([[0, 0, 1, 1, 1]])),
    ],
)
def test_the_numbers_of_each_way(packing):
    assert same_sequence(packing).equal(BLOCKS)


def test_one_sequence_needs_no_mask():
    assert Packing().segments(2, 5, 5) is None
    assert Packing(position_ids=torch.arange(5)[None]).segments(2, 5, 5) is None
    assert Packing(position_ids=torch.tensor([[0, 1, 0]])).segments(1, 3, 7) is None  # goes on with a cache
    assert Packing(position_ids=torch.zeros(3, 1, 5)).segments(1, 5, 5) is None  # positions in a picture


def test_what_is_ambiguous_is_refused():
    with pytest.raises(ValueError, match="cu_seq_lens_q .* one row, but the batch has 2 rows"):
        Packing(cu_seq_lens_q=torch.tensor([0, 2, 5])).segments(2, 5, 5)
    with pytest.raises(ValueError, match=r"seq_idx of shape \(1, 5\) .* 5 queries and 9 keys.*use_cache=False"):
        Packing(seq_idx=torch.tensor([[0, 0, 1, 1, 1]])).segments(1, 5, 9)


def test_positions_beside_a_mask_of_the_user_mean_nothing_more():
    """The positions of padding start again, too."""
    model, inputs = tiny_model("llama", "sparse_hopfield"), tiny_inputs("llama")
    mask = torch.ones_like(inputs["input_ids"])
    mask[0, :3] = 0
    positions = (mask.cumsum(-1) - 1).masked_fill(mask == 0, 1)
    result = tiny_output(model, {**inputs, "attention_mask": mask, "position_ids": positions})
    alone = tiny_output(model, {"input_ids": inputs["input_ids"][:1, 3:]})
    torch.testing.assert_close(result[:1, 3:], alone, rtol=1e-4, atol=1e-5)


def test_positions_that_change_in_place_are_read_again():
    positions = torch.arange(5)[None].clone()
    assert Packing(position_ids=positions).segments(1, 5, 5) is None
    positions[0, 2:] -= 2
    for _ in range(2):
        assert same_sequence(Packing(position_ids=positions)).equal(BLOCKS)
    with torch.inference_mode():
        assert same_sequence(Packing(position_ids=torch.tensor([[0, 1, 0, 1, 2]]))).equal(BLOCKS)


def test_two_ways_that_differ_divide_a_row_twice():
    generator = torch.Generator().manual_seed(0)
    one, other = (
        tuple(torch.randint(-3, 3, (batch, n), generator=generator) * 2**40 for n in (5, 7)) for batch in (2, 1)
    )
    queries, keys = both(one, other)
    expected = (one[0][:, :, None] == one[1][:, None]) & (other[0][:, :, None] == other[1][:, None])
    assert (queries[:, :, None] == keys[:, None]).equal(expected) and expected.any() and not expected.all()
    assert queries.dtype == torch.int32 and both(one, None) is one and both(None, None) is None
    packing = Packing(torch.tensor([0, 3, 5]), None, torch.tensor([[0, 0, 1, 1, 1]]))
    assert packing.segments(1, 5, 5)[0].tolist() == [[0, 0, 1, 2, 2]]
