# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`SparseHopfield` equals the formula, is free of the known bugs of hflayers, and refuses what makes no sense."""

import copy
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hf_sparse_hopfield import SparseHopfield, SparseHopfieldLayer, SparseHopfieldPooling

from .formula import hopfield_formula, scramble, softmax, sparsemax


NO_NORMS = {
    "normalize_stored_pattern": False,
    "normalize_state_pattern": False,
    "normalize_pattern_projection": False,
}
STATIC = {
    "stored_pattern_as_static": True,
    "state_pattern_as_static": True,
    "pattern_projection_as_static": True,
    "disable_out_projection": True,
    **NO_NORMS,
}


def build(**options) -> SparseHopfield:
    layer = SparseHopfield(update_steps_eps=0.0, **options).double().eval()
    scramble(layer)
    return layer


def patterns(batch=3, stored=6, states=4, widths=(8, 8, 8)):
    lengths = (stored, states, stored)
    return tuple(
        torch.randn(batch, length, width, dtype=torch.float64) for length, width in zip(lengths, widths, strict=True)
    )


def assert_equals_formula(layer, inputs, padding_mask=None, association_mask=None, additive_mask=None, **options):
    output, weights, values = hopfield_formula(
        layer.state_dict(), *inputs, padding_mask=padding_mask, additive_mask=additive_mask, **options
    )
    masks = (padding_mask, association_mask)
    torch.testing.assert_close(layer(inputs, *masks), output, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(layer.get_association_matrix(inputs, *masks), weights, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(layer.get_projected_pattern_matrix(inputs, *masks), values, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("alpha", "normalizer"), [(1.0, softmax), (2.0, sparsemax)])
@pytest.mark.parametrize("updates", [0, 3])
@pytest.mark.parametrize("num_heads", [1, 2])
def test_equals_formula(alpha, normalizer, updates, num_heads):
    layer = build(input_size=8, num_heads=num_heads, alpha=alpha, update_steps_max=updates)
    assert_equals_formula(
        layer,
        patterns(),
        normalizer=normalizer,
        num_heads=num_heads,
        hidden_size=8 // num_heads,
        update_steps_max=updates,
    )


@given(
    num_heads=st.integers(1, 3),
    hidden_size=st.integers(1, 5),
    pattern_size=st.none() | st.integers(1, 5),
    output_size=st.none() | st.integers(1, 7),
    stored_width=st.integers(1, 6),
    projection_width=st.integers(1, 6),
    batch=st.integers(1, 3),
    stored=st.integers(1, 6),
    states=st.integers(1, 4),
    updates=st.integers(0, 2),
    sparse=st.booleans(),
    input_bias=st.booleans(),
    space=st.booleans(),
    space_affine=st.booleans(),
    normalize=st.booleans(),
    concat_bias_pattern=st.booleans(),
    add_zero_association=st.booleans(),
    masked=st.booleans(),
)
def test_equals_formula_for_all_sizes(
    num_heads,
    hidden_size,
    pattern_size,
    output_size,
    stored_width,
    projection_width,
    batch,
    stored,
    states,
    updates,
    sparse,
    input_bias,
    space,
    space_affine,
    normalize,
    concat_bias_pattern,
    add_zero_association,
    masked,
):
    layer = build(
        input_size=4,
        hidden_size=hidden_size,
        output_size=output_size,
        pattern_size=pattern_size,
        num_heads=num_heads,
        update_steps_max=updates,
        stored_pattern_size=stored_width,
        pattern_projection_size=projection_width,
        alpha=2.0 if sparse else 1.0,
        beta=1.7,
        input_bias=input_bias,
        normalize_hopfield_space=space,
        normalize_hopfield_space_affine=space and space_affine,
        concat_bias_pattern=concat_bias_pattern,
        add_zero_association=add_zero_association,
        **({} if normalize else NO_NORMS),
    )
    inputs = patterns(batch, stored, states, (stored_width, 4, projection_width))
    assert layer(inputs).shape == (batch, states, output_size or 4)
    padding = torch.rand(batch, stored) < 0.4 if masked else None
    association = torch.rand(states, stored) < 0.4 if masked else None
    additive = None
    if masked:
        additive = torch.where(association, -math.inf, 0.0).expand(batch, num_heads, states, stored)
    assert_equals_formula(
        layer,
        inputs,
        padding_mask=padding,
        association_mask=association,
        additive_mask=additive,
        normalizer=sparsemax if sparse else softmax,
        num_heads=num_heads,
        hidden_size=hidden_size,
        update_steps_max=updates,
        beta=1.7,
        normalize=normalize,
        normalize_hopfield_space=space,
        concat_bias_pattern=concat_bias_pattern,
        add_zero_association=add_zero_association,
    )


STATIC_CASES = [
    (stored, state, projection, connected, out)
    for stored in (False, True)
    for state in (False, True)
    for projection in (False, True)
    for connected in (False, True)
    for out in (False, True)
]


@pytest.mark.parametrize(("stored", "state", "projection", "connected", "out"), STATIC_CASES)
def test_static_and_connected_patterns(stored, state, projection, connected, out):
    """Every combination with several heads and a batch; hflayers mixes samples in several of them."""
    static = {
        "stored_pattern_as_static": stored,
        "state_pattern_as_static": state,
        "pattern_projection_as_static": projection,
        "pattern_projection_as_connected": connected,
    }
    layer = build(
        input_size=5,
        hidden_size=5,
        num_heads=3,
        alpha=1.0,
        update_steps_max=1,
        disable_out_projection=not out,
        **static,
    )
    everything = stored and state and projection and not connected and not out
    assert_equals_formula(
        layer,
        patterns(batch=4, widths=(5, 5, 5)),
        num_heads=3,
        hidden_size=5,
        scaling=1.0 if everything else None,
        update_steps_max=1,
        **static,
    )


def test_static_samples_are_not_mixed():
    """hflayers repeats static keys over the batch in the wrong order: with heads, samples see each other's keys."""
    layer = SparseHopfield(num_heads=3, scaling=2.0, alpha=1.0, update_steps_max=2, **STATIC)
    inputs = patterns(batch=4)
    together = layer(inputs)
    for i in range(4):
        torch.testing.assert_close(together[i : i + 1], layer(tuple(x[i : i + 1] for x in inputs)))
    torch.testing.assert_close(together[..., :8], together[..., 8:16])


def test_scaling_per_head():
    """hflayers tiles per-head scalings over features, so that each head gets a mixture of them."""
    scaling = [0.1, 1.0, 3.0]
    layer = build(input_size=6, hidden_size=4, num_heads=3, scaling=torch.tensor(scaling).double(), alpha=1.0)
    layer_of_floats = build(input_size=6, hidden_size=4, num_heads=3, scaling=scaling, alpha=1.0)
    layer_of_floats.load_state_dict(layer.state_dict())
    inputs = patterns(widths=(6, 6, 6))
    assert_equals_formula(layer_of_floats, inputs, num_heads=3, hidden_size=4, scaling=scaling)
    torch.testing.assert_close(layer(inputs), layer_of_floats(inputs))
    wrong = hopfield_formula(layer.state_dict(), *inputs, num_heads=3, hidden_size=4, scaling=scaling[::-1])[1]
    assert not torch.allclose(layer.get_association_matrix(inputs), wrong, atol=1e-3)


def test_result_does_not_depend_on_the_batch():
    """hflayers stops when the slowest sample of the batch has converged, and so goes on with the others."""
    layer = SparseHopfield(scaling=1.0, alpha=1.0, update_steps_max=6, update_steps_eps=0.3, **STATIC).double()
    generator = torch.Generator().manual_seed(1)
    stored = torch.randn(8, 5, 4, generator=generator, dtype=torch.float64)
    state = 2.0 * torch.randn(8, 3, 4, generator=generator, dtype=torch.float64)
    together = layer((stored, state, stored))
    alone = torch.cat([layer((stored[i : i + 1], state[i : i + 1], stored[i : i + 1])) for i in range(8)])
    torch.testing.assert_close(together, alone, rtol=1e-12, atol=1e-12)
    rows = torch.cat([layer((stored, state[:, i : i + 1], stored)) for i in range(3)], dim=1)
    torch.testing.assert_close(together, rows, rtol=1e-12, atol=1e-12)
    # The test can fail: with this tolerance some rows do stop early, and never stopping gives something else.
    endless = SparseHopfield(scaling=1.0, alpha=1.0, update_steps_max=6, update_steps_eps=0.0, **STATIC).double()
    moved = (endless((stored, state, stored)) - together).norm(dim=-1)
    assert (moved > 1e-3).any()


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
def test_fully_masked_rows_are_zero(alpha):
    """hflayers returns NaN there."""
    layer = build(input_size=8, num_heads=2, alpha=alpha, update_steps_max=2)
    inputs = patterns(batch=2)
    leaves = [x.requires_grad_() for x in inputs]
    padding = torch.tensor([[True] * 6, [False] * 6])
    output = layer(inputs, padding)
    torch.testing.assert_close(output[0], layer.association_core.out_proj.bias.expand(4, 8))
    torch.testing.assert_close(output[1:], layer(tuple(x[1:] for x in inputs)))
    assert (layer.get_association_matrix(inputs, padding)[0] == 0).all()
    output.square().sum().backward()
    for x in leaves:
        assert (x.grad[0] == 0).all()
        assert x.grad[1].abs().sum() > 0
    assert all(torch.isfinite(p.grad).all() for p in layer.parameters() if p.grad is not None)


def test_bias_pattern_is_used():
    """hflayers creates bias_k and bias_v and ignores them."""
    layer = build(input_size=8, num_heads=2, concat_bias_pattern=True, alpha=1.0)
    inputs = patterns()
    before = layer(inputs)
    assert layer.get_association_matrix(inputs).shape == (3, 2, 4, 7)
    with torch.no_grad():
        layer.association_core.bias_v.add_(1.0)
    assert not torch.allclose(before, layer(inputs))
    everything_masked = torch.ones(3, 6, dtype=torch.bool)
    weights = layer.get_association_matrix(inputs, everything_masked)
    torch.testing.assert_close(weights[..., -1], torch.ones_like(weights[..., -1]))


def test_association_mask_forms_agree():
    layer = build(input_size=8, num_heads=2)
    inputs = patterns()
    mask = torch.rand(4, 6) < 0.5
    expected = layer(inputs, None, mask)
    assert not torch.allclose(expected, layer(inputs))
    batch = mask.expand(3, 4, 6)
    flat = mask.expand(6, 4, 6)
    full = mask.expand(3, 2, 4, 6)
    additive = torch.where(mask, -math.inf, 0.0)
    lowest = torch.where(mask, torch.finfo(torch.float32).min, 0.0)
    for form in (batch, flat, full, mask[None, None], additive, additive.expand(3, 2, 4, 6), lowest):
        torch.testing.assert_close(layer(inputs, None, form), expected)
    # The order of the flat form is that of hflayers: heads are the fastest.
    different = torch.rand(3, 2, 4, 6) < 0.5
    torch.testing.assert_close(layer(inputs, None, different.flatten(0, 1)), layer(inputs, None, different))


def test_additive_mask_and_padding():
    layer = build(input_size=8, num_heads=2, add_zero_association=True)
    inputs = patterns()
    added = torch.randn(3, 2, 4, 6)
    padding = torch.rand(3, 6) < 0.3
    assert_equals_formula(
        layer,
        inputs,
        padding_mask=padding,
        association_mask=added,
        additive_mask=added,
        normalizer=sparsemax,
        num_heads=2,
        hidden_size=4,
        add_zero_association=True,
    )


def test_padding_does_not_change_anything():
    layer = build(input_size=8, num_heads=2, alpha=1.5, update_steps_max=2)
    stored, state, projection = patterns()
    garbage = torch.full((3, 2, 8), 1e3, dtype=torch.float64)
    padding = torch.tensor([False] * 6 + [True] * 2).expand(3, 8)
    padded = layer((torch.cat([stored, garbage], 1), state, torch.cat([projection, garbage], 1)), padding)
    torch.testing.assert_close(padded, layer((stored, state, projection)))


def test_batch_second():
    first = build(input_size=8, num_heads=2)
    second = build(input_size=8, num_heads=2, batch_first=False)
    second.load_state_dict(first.state_dict())
    inputs = patterns()
    swapped = tuple(x.transpose(0, 1) for x in inputs)
    padding = torch.rand(3, 6) < 0.3
    torch.testing.assert_close(second(swapped, padding), first(inputs, padding).transpose(0, 1))
    torch.testing.assert_close(second.get_association_matrix(swapped), first.get_association_matrix(inputs))
    torch.testing.assert_close(
        second.get_projected_pattern_matrix(swapped), first.get_projected_pattern_matrix(inputs)
    )


def test_one_tensor_and_broadcast_batch():
    layer = build(input_size=8, num_heads=2)
    stored, state, _ = patterns()
    torch.testing.assert_close(layer(stored), layer((stored, stored, stored)))
    shared = stored[:1]
    torch.testing.assert_close(
        layer((shared, state, shared)), layer((shared.expand(3, -1, -1), state, shared.expand(3, -1, -1)))
    )
    torch.testing.assert_close(
        layer((stored, state[:1], stored)), layer((stored, state[:1].expand(3, -1, -1), stored))
    )


def test_association_activation():
    plain = build(input_size=8)
    active = build(input_size=8, association_activation="relu")
    active.load_state_dict(plain.state_dict())
    x = patterns()[0]
    torch.testing.assert_close(active(x), plain(x).relu())
    gelu = build(input_size=8, association_activation="gelu")
    gelu.load_state_dict(plain.state_dict())
    torch.testing.assert_close(gelu(x), torch.nn.functional.gelu(plain(x)))


def test_dropout_only_in_training_and_not_in_the_association_matrix():
    layer = build(input_size=8, num_heads=2, dropout=0.5, alpha=1.0)
    x = patterns()[0]
    torch.testing.assert_close(layer(x), layer(x))
    layer.train()
    assert not torch.allclose(layer(x), layer(x))
    torch.testing.assert_close(layer.get_association_matrix(x), layer.get_association_matrix(x))


@pytest.mark.parametrize("updates", [None, -1])
def test_until_convergence(updates):
    layer = SparseHopfield(scaling=2.0, alpha=2.0, update_steps_max=updates, **STATIC).double()
    assert layer.association_core.steps == 129
    stored, state, _ = patterns()
    fixed_point = layer((stored, state, stored))
    torch.testing.assert_close(layer((stored, fixed_point, stored)), fixed_point, atol=1e-3, rtol=0)


def test_learned_parameters_get_gradients_and_act():
    layer = SparseHopfield(8, num_heads=2, alpha=1.5, beta=[1.0, 2.0], learn_alpha=True, learn_beta=True)
    scramble(layer.association_core.out_proj)
    torch.nn.init.normal_(layer.association_core.in_proj_weight)
    fixed = SparseHopfield(8, num_heads=2, alpha=1.5, beta=[1.0, 2.0])
    missing, unexpected = fixed.load_state_dict(layer.state_dict(), strict=False)
    assert not missing
    assert sorted(unexpected) == [
        "association_core.retrieval_parameters.alpha_logit",
        "association_core.retrieval_parameters.log_beta",
    ]
    x = torch.randn(2, 5, 8)
    torch.testing.assert_close(layer(x), fixed(x))
    layer(x).square().sum().backward()
    parameters = layer.association_core.retrieval_parameters
    assert (parameters.log_beta.grad != 0).all()
    assert (parameters.alpha_logit.grad != 0).all()
    torch.testing.assert_close(layer.beta, torch.tensor([1.0, 2.0]))
    torch.testing.assert_close(layer.alpha, torch.tensor([1.5, 1.5]))


def test_settings_per_head_equal_separate_heads():
    layer = build(input_size=8, num_heads=2, alpha=[1.0, 2.0], beta=[0.5, 3.0])
    inputs = patterns()
    weights = layer.get_association_matrix(inputs)
    for head, (normalizer, beta) in enumerate([(softmax, 0.5), (sparsemax, 3.0)]):
        expected = hopfield_formula(
            layer.state_dict(), *inputs, num_heads=2, hidden_size=4, normalizer=normalizer, beta=beta
        )[1]
        torch.testing.assert_close(weights[:, head], expected[:, head])


def test_state_dict_has_the_names_and_shapes_of_hflayers():
    core = "association_core."
    joint = SparseHopfield(8, hidden_size=3, output_size=5, num_heads=2, concat_bias_pattern=True)
    assert {name: tuple(tensor.shape) for name, tensor in joint.state_dict().items()} == {
        core + "in_proj_weight": (18, 8),
        core + "in_proj_bias": (18,),
        core + "out_proj.weight": (5, 6),
        core + "out_proj.bias": (5,),
        core + "bias_k": (1, 1, 6),
        core + "bias_v": (1, 1, 6),
        **{
            f"norm_{x}.{p}": (8,)
            for x in ("stored_pattern", "state_pattern", "pattern_projection")
            for p in ("weight", "bias")
        },
    }
    separate = SparseHopfield(
        8,
        hidden_size=3,
        pattern_size=4,
        num_heads=2,
        stored_pattern_size=7,
        pattern_projection_size=7,
        normalize_hopfield_space=True,
        normalize_hopfield_space_affine=True,
        **NO_NORMS,
    )
    assert {name: tuple(tensor.shape) for name, tensor in separate.state_dict().items()} == {
        core + "q_proj_weight": (6, 8),
        core + "k_proj_weight": (6, 7),
        core + "v_proj_weight": (8, 7),
        core + "in_proj_bias": (20,),
        core + "out_proj.weight": (8, 8),
        core + "out_proj.bias": (8,),
        core + "p_norm_weight": (3,),
        core + "p_norm_bias": (3,),
    }
    connected = SparseHopfield(8, hidden_size=3, num_heads=2, pattern_projection_as_connected=True, **NO_NORMS)
    assert connected.association_core.v_proj_weight.shape == (6, 6)
    # hflayers keeps the unused bias of a static pattern projection.
    static = SparseHopfield(8, pattern_projection_as_static=True, **NO_NORMS)
    assert static.association_core.in_proj_weight.shape == (16, 8)
    assert static.association_core.in_proj_bias.shape == (24,)
    assert not SparseHopfield(**STATIC).state_dict()


def test_scaling_defaults():
    assert SparseHopfield(8, hidden_size=4, num_heads=2).scaling == 0.5
    assert SparseHopfield(**STATIC).scaling == 1.0


def test_one_update_more_than_update_steps_max():
    for updates in (0, 1, 4):
        assert SparseHopfield(8, update_steps_max=updates).association_core.steps == updates + 1


def test_half_precision():
    x = torch.randn(2, 6, 16)
    exact = SparseHopfield(16, num_heads=2, learn_beta=True, learn_alpha=True, alpha=1.5)
    for dtype in (torch.float16, torch.bfloat16):
        layer = copy.deepcopy(exact).to(dtype)
        output = layer(x.to(dtype))
        assert output.dtype == dtype
        torch.testing.assert_close(output.float(), exact(x), atol=2e-3, rtol=0.05)


def test_reset_parameters_reinitialises():
    layer = build(input_size=8, num_heads=2, learn_beta=True, beta=3.0)
    layer.reset_parameters()
    torch.testing.assert_close(layer.beta, torch.full((2,), 3.0, dtype=torch.float64))
    assert layer.association_core.in_proj_weight.std() < 0.05
    assert (layer.association_core.in_proj_bias == 0).all()
    assert (layer.norm_state_pattern.weight == 1).all()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"input_size": 8, "alpha": 2.5}, ValueError, "alpha"),
        ({"input_size": 8, "alpha": 0.9}, ValueError, "alpha"),
        ({"input_size": 8, "alpha": float("nan")}, ValueError, "alpha"),
        ({"input_size": 8, "alpha": "2"}, TypeError, "alpha"),
        ({"input_size": 8, "beta": 0.0}, ValueError, "beta"),
        ({"input_size": 8, "num_heads": 2, "beta": [1.0, -1.0]}, ValueError, "beta"),
        ({"input_size": 8, "num_heads": 2, "beta": [1.0, 1.0, 1.0]}, ValueError, "num_heads=2"),
        ({"input_size": 8, "scaling": -1.0}, ValueError, "scaling"),
        ({"input_size": 8, "num_heads": 2, "scaling": torch.ones(3)}, ValueError, "scaling"),
        ({"input_size": 8, "scaling": torch.ones(1, requires_grad=True)}, ValueError, "learn_beta"),
        ({"input_size": 8, "num_heads": 3}, ValueError, "divisible"),
        ({"input_size": 8, "num_heads": 0}, ValueError, "num_heads"),
        ({"input_size": 0}, ValueError, "input_size"),
        ({"input_size": 8, "hidden_size": 2.0}, ValueError, "hidden_size"),
        ({}, ValueError, "input_size"),
        ({"input_size": 8, "update_steps_max": 1.5}, TypeError, "update_steps_max"),
        ({"input_size": 8, "update_steps_max": torch.ones(1)}, TypeError, "update_steps_max"),
        ({"input_size": 8, "update_steps_eps": -1e-3}, ValueError, "update_steps_eps"),
        ({"input_size": 8, "update_steps_max": None, "update_steps_eps": 0.0}, ValueError, "convergence"),
        ({"input_size": 8, "dropout": 1.0}, ValueError, "dropout"),
        ({"input_size": 8, "association_activation": "no_such_function"}, ValueError, "no_such_function"),
        ({"input_size": 8, "association_activation": "sum"}, ValueError, "association_activation"),
        ({"input_size": 8, "batch_first": 1}, TypeError, "batch_first"),
        (
            {"input_size": 8, "normalize_stored_pattern": False, "normalize_stored_pattern_affine": True},
            ValueError,
            "affine",
        ),
        ({"input_size": 8, "normalize_hopfield_space_affine": True}, ValueError, "normalize_hopfield_space"),
        ({"input_size": 8, "output_size": 5, "disable_out_projection": True}, ValueError, "output_size"),
        (
            {"input_size": 8, "stored_pattern_as_static": True, "concat_bias_pattern": True},
            ValueError,
            "concat_bias_pattern",
        ),
        ({"input_size": 8, "hidden_size": 4, "state_pattern_as_static": True}, ValueError, "state_pattern"),
        (
            {"input_size": 8, "stored_pattern_size": 4, "pattern_projection_as_connected": True},
            ValueError,
            "connected",
        ),
        ({"input_size": 8, "no_such_option": 1}, TypeError, "no_such_option"),
        ({**STATIC, "normalize_state_pattern": True}, ValueError, "input_size"),
        ({**STATIC, "output_size": 3}, ValueError, "output_size"),
    ],
)
def test_bad_options_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        SparseHopfield(**options)


def test_bad_inputs_are_refused():
    layer = SparseHopfield(8, num_heads=2)
    stored, state, projection = (x.float() for x in patterns())
    for bad in (None, (stored, state), (stored, state, None)):
        with pytest.raises(TypeError, match="input must be"):
            layer(bad)
    with pytest.raises(ValueError, match="state_pattern must have shape"):
        layer((stored, state[0], projection))
    with pytest.raises(ValueError, match="stored_pattern must have width 8"):
        layer((stored[..., :7], state, projection))
    with pytest.raises(ValueError, match="same length"):
        layer((stored, state, projection[:, :5]))
    with pytest.raises(ValueError, match="batch size"):
        layer((stored, state[:2], projection))
    with pytest.raises(TypeError, match="stored_pattern_padding_mask must be boolean"):
        layer((stored, state, projection), torch.zeros(3, 6))
    with pytest.raises(ValueError, match="stored_pattern_padding_mask has shape"):
        layer((stored, state, projection), torch.zeros(6, 3, dtype=torch.bool))
    with pytest.raises(TypeError, match="association_mask must be boolean"):
        layer((stored, state, projection), None, torch.zeros(4, 6, dtype=torch.uint8))
    with pytest.raises(ValueError, match="association_mask has shape"):
        layer((stored, state, projection), None, torch.zeros(6, 4, dtype=torch.bool))
    for masks in (([[False] * 6] * 3, None), (None, [[False] * 6] * 4), (torch.zeros(3, 6).bool().numpy(), None)):
        with pytest.raises(
            TypeError, match="_mask must be a tensor, got (list|ndarray); convert it with torch.tensor"
        ):
            layer((stored, state, projection), *masks)
    for layer_class in (SparseHopfield, SparseHopfieldLayer, SparseHopfieldPooling):
        with pytest.raises(ValueError, match="backend='no_such_backend' is unknown; use 'auto' or one of .*reference"):
            layer_class(8, backend="no_such_backend")
    static = SparseHopfield(**STATIC)
    with pytest.raises(ValueError, match="same width"):
        static((stored, state[..., :5], projection))
