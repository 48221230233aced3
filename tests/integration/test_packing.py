# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Sequences packed into one row. Whole models are in `tests/roads/test_keywords.py`."""

import pytest
import torch

from hf_sparse_hopfield.integration.packing import Packing

from ..tiny_models import tiny_inputs, tiny_model, tiny_output


BLOCKS = torch.block_diag(torch.ones(2, 2), torch.ones(3, 3)).bool()[None, None]


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
def test_the_mask_of_each_way(packing):
    assert torch.equal(packing.same_sequence(1, 5, 5), BLOCKS)


def test_one_sequence_needs_no_mask():
    assert Packing().same_sequence(2, 5, 5) is None
    assert Packing(position_ids=torch.arange(5)[None]).same_sequence(2, 5, 5) is None
    assert Packing(position_ids=torch.tensor([[0, 1, 0]])).same_sequence(1, 3, 7) is None  # goes on with a cache
    assert Packing(position_ids=torch.zeros(3, 1, 5)).same_sequence(1, 5, 5) is None  # positions in a picture


def test_what_is_ambiguous_is_refused():
    with pytest.raises(ValueError, match="cu_seq_lens_q .* one row, but the batch has 2 rows"):
        Packing(cu_seq_lens_q=torch.tensor([0, 2, 5])).same_sequence(2, 5, 5)
    with pytest.raises(ValueError, match=r"seq_idx of shape \(1, 5\) .* 5 queries and 9 keys.*use_cache=False"):
        Packing(seq_idx=torch.tensor([[0, 0, 1, 1, 1]])).same_sequence(1, 5, 9)


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
    assert Packing(position_ids=positions).same_sequence(1, 5, 5) is None
    positions[0, 2:] -= 2
    for _ in range(2):
        assert Packing(position_ids=positions).same_sequence(1, 5, 5).equal(BLOCKS)
    with torch.inference_mode():
        assert Packing(position_ids=torch.tensor([[0, 1, 0, 1, 2]])).same_sequence(1, 5, 5).equal(BLOCKS)
