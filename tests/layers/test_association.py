# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The core of the layers on its own; that it computes the right thing is tested through `SparseHopfield`."""

import pytest
import torch
from torch import nn

from hf_sparse_hopfield import SparseHopfield
from hf_sparse_hopfield.layers.association import check_backend, in_rows


def core(**options):
    return SparseHopfield(8, num_heads=2, **options).association_core


def test_default_sizes():
    default = core()
    sizes = (default.hidden_size, default.pattern_size, default.output_size, default.stored_pattern_size)
    assert sizes == (4, 4, 8, 8) and default.pattern_projection_size == 8
    given = core(hidden_size=3, pattern_size=5, stored_pattern_size=6)
    sizes = (given.hidden_size, given.pattern_size, given.output_size, given.stored_pattern_size)
    assert sizes == (3, 5, 8, 6) and given.pattern_projection_size == 8
    assert core(pattern_size=5, disable_out_projection=True).output_size == 10


def test_parameters_have_the_order_of_saved_optimizers():
    """An optimizer's state goes by the position of a parameter."""
    options = {"concat_bias_pattern": True, "normalize_hopfield_space": True, "normalize_hopfield_space_affine": True}
    own = ["in_proj_bias", "bias_k", "bias_v", "p_norm_weight", "p_norm_bias"]
    out = ["out_proj.weight", "out_proj.bias"]
    assert [name for name, _ in core(**options).named_parameters()] == ["in_proj_weight", *own, *out]
    separate = [name for name, _ in core(pattern_size=4, **options).named_parameters()]
    assert separate == ["q_proj_weight", "k_proj_weight", "v_proj_weight", *own, *out]


def test_project_gives_heads_and_appends_patterns():
    query, key, value = core(add_zero_association=True, concat_bias_pattern=True, pattern_size=5).project(
        torch.randn(1, 3, 8), torch.randn(2, 6, 8), torch.randn(2, 6, 8)
    )
    assert (query.shape, key.shape, value.shape) == ((2, 2, 3, 4), (2, 2, 8, 4), (2, 2, 8, 5))
    assert not key[:, :, -1].any() and not value[:, :, -1].any()
    assert torch.equal(key[0, :, -2], key[1, :, -2])


def test_returns_weights_only_if_asked():
    patterns = torch.randn(2, 5, 8)
    association = core()
    output, weights = association(patterns, patterns, patterns)
    assert weights is None
    same, weights = association(patterns, patterns, patterns, return_weights=True)
    torch.testing.assert_close(same, output)
    assert weights.shape == (2, 2, 5, 5)


def test_in_rows_is_the_norm_itself():
    norm = nn.LayerNorm(4)
    patterns = torch.randn(2, 3, 4).transpose(0, 1)
    torch.testing.assert_close(in_rows(patterns, norm), norm(patterns))


def test_check_backend():
    check_backend("auto")
    check_backend("reference")
    with pytest.raises(ValueError, match="backend='quick' is unknown; use 'auto' or one of .*reference"):
        check_backend("quick")
