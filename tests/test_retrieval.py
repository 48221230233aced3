import logging

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck

from hf_sparse_hopfield import retrieve
from hf_sparse_hopfield.backends.native import library
from hf_sparse_hopfield.functional import explain_backend

from .backends.cases import retrieve_arguments


@given(retrieve_arguments(), st.data())
def test_rows_are_on_their_own(problem, data):
    """No result depends on batch-mates, on other heads' groups, or on how the queries are split."""
    query, key, value, options = problem
    whole = retrieve(query, key, value, **options)
    b = data.draw(st.integers(0, query.shape[0] - 1))
    one = dict(options)
    if "mask" in one:
        one["mask"] = one["mask"][b : b + 1]
    alone = retrieve(query[b : b + 1], key[b : b + 1], value[b : b + 1], **one)
    torch.testing.assert_close(whole[b : b + 1], alone, rtol=0, atol=1e-12)
    if not options["is_causal"]:
        i = data.draw(st.integers(0, query.shape[2] - 1))
        for name in ("mask", "bias"):
            if name in options:
                options[name] = options[name][:, :, i : i + 1]
        row = retrieve(query[:, :, i : i + 1], key, value, **options)
        torch.testing.assert_close(whole[:, :, i : i + 1], row, rtol=0, atol=1e-12)


@given(retrieve_arguments())
def test_padding_changes_nothing(problem):
    query, key, value, options = problem
    options["is_causal"] = False
    whole = retrieve(query, key, value, **options)
    shape = (*query.shape[:3], key.shape[2])
    mask = options.pop("mask", torch.ones((), dtype=torch.bool)).expand(shape)
    options["mask"] = torch.nn.functional.pad(mask, (1, 2), value=False)
    if "bias" in options:
        options["bias"] = torch.nn.functional.pad(options["bias"], (1, 2), value=5.0)
    padded = [torch.nn.functional.pad(t, (0, 0, 1, 2), value=9.0) for t in (key, value)]
    torch.testing.assert_close(retrieve(query, *padded, **options), whole, rtol=0, atol=1e-12)


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
@pytest.mark.parametrize("steps", [1, 3])
def test_gradcheck(alpha, steps):
    query, key, value = (
        torch.randn(1, h, n, 3, dtype=torch.float64, requires_grad=True) for h, n in ((4, 3), (2, 5), (2, 5))
    )
    beta = torch.rand(4, dtype=torch.float64).add(0.5).requires_grad_()
    bias = torch.randn(1, 4, 3, 5, dtype=torch.float64, requires_grad=True)
    sinks = torch.randn(4, dtype=torch.float64, requires_grad=True)

    def function(query, key, value, beta, bias, sinks):
        return retrieve(
            query, key, value, beta=beta, bias=bias, sinks=sinks, alpha=alpha, steps=steps, is_causal=True, softcap=5.0
        )

    assert gradcheck(function, (query, key, value, beta, bias, sinks))


def test_alpha_gradcheck():
    tensors = tuple(torch.randn(1, 2, 4, 3, dtype=torch.float64, requires_grad=True) for _ in range(3))
    alpha = torch.tensor([1.3, 1.7], dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda q, k, v, a: retrieve(q, k, v, alpha=a, steps=2), (*tensors, alpha))


def test_alpha_one_is_scaled_dot_product_attention():
    query, key, value = torch.randn(3, 2, 4, 9, 16).unbind()
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    torch.testing.assert_close(retrieve(query, key, value, alpha=1.0, is_causal=True), expected)


def test_causal_is_aligned_bottom_right():
    query, key, value = torch.randn(1, 2, 6, 8), torch.randn(1, 2, 6, 8), torch.randn(1, 2, 6, 8)
    whole = retrieve(query, key, value, is_causal=True)
    torch.testing.assert_close(retrieve(query[:, :, 4:], key, value, is_causal=True), whole[:, :, 4:])
    # more queries than keys: the first see nothing
    assert (retrieve(query, key[:, :, :2], value[:, :, :2], is_causal=True)[:, :, :4] == 0).all()


def test_sliding_window():
    query, key, value = torch.randn(3, 1, 2, 8, 4).unbind()
    position = torch.arange(8)
    band = (position[None] <= position[:, None]) & (position[None] > position[:, None] - 3)
    torch.testing.assert_close(
        retrieve(query, key, value, is_causal=True, sliding_window=3), retrieve(query, key, value, mask=band)
    )


def test_additive_masks():
    query, key, value = torch.randn(3, 2, 2, 5, 4).unbind()
    allowed = torch.rand(2, 1, 5, 5) < 0.6
    allowed[0, 0, 0] = False
    slope = torch.randn(2, 1, 5, 5)
    expected = retrieve(query, key, value, mask=allowed, bias=slope)
    for lowest in (-torch.inf, torch.finfo(torch.float32).min, torch.finfo(torch.float16).min, -1e9, -1e4):
        additive = slope.masked_fill(~allowed, lowest)
        torch.testing.assert_close(retrieve(query, key, value, mask=additive), expected)
        torch.testing.assert_close(retrieve(query, key, value, mask=additive - slope, bias=slope), expected)
    assert (expected[0, :, 0] == 0).all()


def test_nothing_to_attend_to():
    query, key, value = (torch.randn(1, 2, 4, 3, requires_grad=True) for _ in range(3))
    mask = torch.ones(4, 4, dtype=torch.bool)
    mask[1] = False
    for steps in (1, 3):
        output = retrieve(query, key, value, mask=mask, steps=steps)
        assert (output[:, :, 1] == 0).all()
        gradients = torch.autograd.grad(output.square().sum(), (query, key, value))
        assert all(g.isfinite().all() for g in gradients)
        assert (gradients[0][:, :, 1] == 0).all()
    assert (retrieve(query, key[:, :, :0], value[:, :, :0]) == 0).all()
    assert retrieve(query[:, :, :0], key, value).shape == (1, 2, 0, 3)


def test_sinks_are_one_more_column():
    query, key, value = torch.randn(3, 2, 4, 5, 8, dtype=torch.float64).unbind()
    sinks = torch.randn(4, dtype=torch.float64)
    zero = torch.zeros(2, 4, 1, 8, dtype=torch.float64)
    bias = torch.cat([torch.zeros(2, 4, 5, 5), sinks[:, None, None].expand(2, 4, 5, 1)], -1).double()
    for steps in (1, 2):
        expected = retrieve(query, torch.cat([key, zero], 2), torch.cat([value, zero], 2), bias=bias, steps=steps)
        output, weights = retrieve(query, key, value, sinks=sinks, steps=steps, return_weights=True)
        torch.testing.assert_close(output, expected)
        assert weights.shape == (2, 4, 5, 5)
        assert (weights.sum(-1) < 1 - 1e-6).any()


def test_softcap():
    query, key, value = torch.randn(3, 2, 4, 5, 8).unbind()
    capped = 2.0 * torch.tanh(query @ key.transpose(-1, -2) / 8**0.5 / 2.0)
    expected = retrieve(query, torch.zeros_like(key), value, bias=3 * capped)
    torch.testing.assert_close(retrieve(query, key, value, softcap=2.0, beta=3.0), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype):
    query, key, value = torch.randn(3, 2, 4, 9, 16).to(dtype).unbind()
    output, weights = retrieve(query, key, value, steps=2, return_weights=True)
    assert output.dtype == weights.dtype == dtype
    expected = retrieve(query.float(), key.float(), value.float(), steps=2)
    torch.testing.assert_close(output, expected.to(dtype))


def test_weights_and_dropout():
    query, key, value = torch.randn(3, 2, 4, 50, 16, dtype=torch.float64).unbind()
    output, weights = retrieve(query, key, value, return_weights=True, dropout=0.0)
    torch.testing.assert_close(weights @ value, output)
    dropped, same = retrieve(query, key, value, return_weights=True, dropout=0.5)
    torch.testing.assert_close(same, weights)
    assert not torch.allclose(dropped, output)
    assert (retrieve(query, key, value, dropout=1.0) == 0).all()
    identity = torch.eye(50, dtype=torch.float64).expand(2, 4, 50, 50)
    read = retrieve(query, key, identity, dropout=0.25)  # shows the weights that were used
    kept = read != 0
    torch.testing.assert_close(read[kept], weights[kept] / 0.75)
    assert 0.6 < kept.sum() / (weights > 0).sum() < 0.9


def test_dropout_acts_on_the_read_out_only():
    query, key, value = torch.randn(3, 2, 2, 20, 8).unbind()
    plain = retrieve(query, key, value, steps=3, return_trace=True)
    dropped = retrieve(query, key, value, steps=3, dropout=0.5, return_trace=True)
    torch.testing.assert_close(plain.states, dropped.states)
    torch.testing.assert_close(plain.weights, dropped.weights)


def test_tolerance_stops_rows_one_by_one():
    key = torch.eye(8, dtype=torch.float64).expand(1, 1, 8, 8)
    query = torch.cat([key[:, :, :1], torch.randn(1, 1, 1, 8, dtype=torch.float64) * 0.2], 2)
    result = retrieve(query, key, key, scaling=1.0, beta=2.0, steps=10, tolerance=1e-6, return_trace=True)
    assert result.steps_used[0, 0, 0] == 2  # one step shows that it does not move, one reads out
    assert result.steps_used[0, 0, 1] > 2
    alone = retrieve(query[:, :, :1], key, key, scaling=1.0, beta=2.0, steps=10, tolerance=1e-6)
    assert torch.equal(result.output[:, :, :1], alone)


def test_energies_fall_for_masked_biased_attention():
    query, key, value = (4 * torch.randn(3, 2, 3, 30, 8, dtype=torch.float64)).unbind()
    options = {"bias": torch.randn(30, 30, dtype=torch.float64), "sinks": torch.randn(3, dtype=torch.float64)}
    trace = retrieve(query, key, value, steps=6, is_causal=True, return_trace=True, **options)
    assert (trace.energies.diff(dim=0) <= 1e-9).all()
    assert trace.states.shape == (6, 2, 3, 30, 8)


@pytest.mark.parametrize("tolerance", [0.0, 0.1])
def test_nan_stays_in_its_row(tolerance):
    query, key, value = torch.randn(3, 1, 2, 5, 4).unbind()
    clean = retrieve(query, key, value, steps=3, tolerance=tolerance)
    query[0, 0, 3, 1] = torch.nan
    output = retrieve(query, key, value, steps=3, tolerance=tolerance)
    assert output[0, 0, 3].isnan().all()
    others = [i for i in range(5) if i != 3]
    torch.testing.assert_close(output[0, 0, others], clean[0, 0, others])
    torch.testing.assert_close(output[0, 1], clean[0, 1])


def test_autocast_does_not_lower_the_precision():
    query, key, value = torch.randn(3, 2, 4, 9, 16).unbind()
    expected = retrieve(query, key, value, steps=3)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(retrieve(query, key, value, steps=3), expected)


def test_compile_with_numbers_that_change():
    query, key, value = torch.randn(3, 2, 4, 6, 8).unbind()
    compiled = torch.compile(
        lambda beta, scaling: retrieve(query, key, value, beta=beta, scaling=scaling),
        fullgraph=True,
        backend="aot_eager",
    )
    for beta, scaling in ((0.1, 0.5), (0.2, 0.6), (0.3, 0.7)):
        torch.testing.assert_close(compiled(beta, scaling), retrieve(query, key, value, beta=beta, scaling=scaling))


@pytest.mark.parametrize("options", [{}, {"alpha": 1.3, "steps": 3, "tolerance": 0.1, "is_causal": True}])
def test_compile_and_export(options):
    class Module(torch.nn.Module):
        def forward(self, query, key, value):
            return retrieve(query, key, value, **options)

    tensors = tuple(torch.randn(2, 4, 6, 8) for _ in range(3))
    expected = Module()(*tensors)
    torch.testing.assert_close(torch.compile(Module(), fullgraph=True, backend="aot_eager")(*tensors), expected)
    torch.testing.assert_close(torch.export.export(Module(), tensors).module()(*tensors), expected)


def test_says_which_backend_it_uses(caplog):
    query, key, value = torch.randn(3, 1, 2, 5, 4).unbind()
    assert explain_backend(query, key, value, backend="reference") == "reference: asked for by name"
    with pytest.raises(ValueError, match="backend='flash'.*'reference'"):
        retrieve(query, key, value, backend="flash")
    with caplog.at_level(logging.DEBUG, logger="hf_sparse_hopfield"):
        retrieve(query, key, value)
    assert "backend" in caplog.text


@pytest.mark.parametrize("backend", ["reference", "blocked", "native", "dense"])
@pytest.mark.parametrize("batches", [(1, 3, 3), (3, 1, 1), (1, 1, 3), (3, 3, 1)])
def test_a_batch_of_one_broadcasts_as_in_sdpa(batches, backend):
    alpha = 1.0 if backend == "dense" else 1.5
    if backend == "native" and library.missing is not None:
        pytest.skip(library.missing)
    shapes = ((4, 6, 8), (2, 7, 8), (2, 7, 8))
    states = [torch.randn(b, *shape, requires_grad=True) for b, shape in zip(batches, shapes, strict=True)]
    bias = torch.randn(1, 4, 6, 7)
    whole = [state.expand(3, -1, -1, -1).detach().clone().requires_grad_() for state in states]
    output = retrieve(*states, alpha=alpha, bias=bias, backend=backend)
    expected = retrieve(*whole, alpha=alpha, bias=bias, backend="reference")
    torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-5)
    direction = torch.randn_like(output)
    (output * direction).sum().backward()
    (expected * direction).sum().backward()
    for state, other in zip(states, whole, strict=True):
        gradient = other.grad if state.shape[0] == 3 else other.grad.sum(0, keepdim=True)
        torch.testing.assert_close(state.grad, gradient, rtol=1e-3, atol=1e-4)
    softmax = torch.nn.functional.scaled_dot_product_attention(*states, attn_mask=bias, enable_gqa=True)
    torch.testing.assert_close(retrieve(*states, alpha=1.0, bias=bias), softmax, rtol=1e-4, atol=1e-5)


GOOD = {"query": torch.zeros(1, 4, 3, 8), "key": torch.zeros(1, 2, 5, 8), "value": torch.zeros(1, 2, 5, 6)}

THREE_ROWS = {"key": torch.zeros(3, 2, 5, 8), "value": torch.zeros(3, 2, 5, 6)}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"alpha": 0.5}, "alpha.*0.5"),
        ({"alpha": torch.full((3,), 1.5)}, r"alpha of shape \(3,\).*\(4,\)"),
        ({"beta": 0}, "beta.*0"),
        ({"beta": -1.0}, "beta.*-1.0"),
        ({"beta": float("inf")}, "beta.*inf"),
        ({"beta": torch.tensor([1.0, 0.0, 1.0, 1.0])}, "beta.*0.0"),
        ({"steps": 0}, "steps.*0"),
        ({"steps": 1.5}, "steps.*1.5"),
        ({"steps": True}, "steps.*True"),
        ({"tolerance": -1.0}, "tolerance.*-1.0"),
        ({"tolerance": float("nan")}, "tolerance.*nan"),
        ({"dropout": 1.5}, "dropout.*1.5"),
        ({"mask": torch.ones(3, 5, dtype=torch.int64)}, "mask.*int64.*bool"),
        ({"mask": torch.ones(4, 5, dtype=torch.bool)}, r"mask of shape \(4, 5\).*\(1, 4, 3, 5\)"),
        ({"bias": torch.ones(3, 5, dtype=torch.bool)}, "bias.*bool"),
        ({"bias": torch.ones(3, 6)}, r"bias of shape \(3, 6\)"),
        ({"scaling": float("nan")}, "scaling.*nan"),
        ({"scaling": torch.ones(4)}, "scaling"),
        ({"sliding_window": 2}, "sliding_window=2 needs is_causal"),
        ({"sliding_window": 0, "is_causal": True}, "sliding_window.*0"),
        ({"softcap": 0.0}, "softcap.*0.0"),
        ({"softcap": float("inf")}, "softcap.*inf"),
        ({"softcap": "1"}, "softcap.*'1'"),
        ({"scaling": True}, "scaling.*True"),
        ({"tolerance": "a"}, "tolerance.*'a'"),
        ({"dropout": torch.tensor(0.5)}, "dropout.*0.5"),
        ({"is_causal": "no"}, "is_causal.*'no'"),
        ({"beta": torch.tensor(torch.inf)}, "beta.*inf"),
        ({"sinks": [0.0] * 4}, "sinks.*list"),
        ({"sinks": torch.zeros(4, dtype=torch.int64)}, "sinks.*int64"),
        ({"bias": [0.0]}, "bias.*list"),
        ({"softcap": 1.0, "return_trace": True}, "return_trace.*softcap"),
        ({"sinks": torch.zeros(2)}, r"sinks.*\(4,\).*\(2,\)"),
        ({"query": torch.zeros(4, 3, 8)}, "query.*four dimensions"),
        ({"query": torch.zeros(1, 3, 3, 8)}, "3 heads.*multiple.*2"),
        ({"query": torch.zeros(2, 4, 3, 8), **THREE_ROWS}, "query of shape.*batch"),
        ({**THREE_ROWS, "key": torch.zeros(2, 2, 5, 8)}, "key of shape.*batch"),
        ({"query": torch.zeros(1, 4, 3, 7)}, "query of shape.*head_dim"),
        ({"query": torch.zeros(1, 4, 3, 8, dtype=torch.int64)}, "query.*int64"),
        ({"query": torch.zeros(1, 4, 3, 8, dtype=torch.float64)}, "dtype"),
        ({"value": torch.zeros(1, 2, 4, 6)}, "key of shape.*value of shape"),
    ],
)
def test_bad_input(arguments, words):
    retrieve(**GOOD)
    with pytest.raises((ValueError, TypeError), match=words):
        retrieve(**{**GOOD, **arguments})


@given(retrieve_arguments(), st.data())
def test_segments_are_retrievals_of_their_own(problem, data):
    query, key, value, options = problem
    options |= {"is_causal": False, "return_trace": data.draw(st.booleans())}
    options.pop("bias", None)
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 2**20)))
    rows = data.draw(st.sampled_from([1, query.shape[0]]))
    dtype = data.draw(st.sampled_from([torch.int64, torch.int32, torch.uint8]))
    numbers = [torch.randint(3, (rows, x.shape[2]), generator=generator).to(dtype) for x in (query, key)]
    whole = retrieve(query, key, value, segments=tuple(numbers), **options)
    for b in range(query.shape[0]):
        for number in range(3):
            of_queries, of_keys = (found[b % rows] == number for found in numbers)
            mask = None if options.get("mask") is None else options["mask"][b : b + 1, :, of_queries][..., of_keys]
            parts = query[b : b + 1, :, of_queries], key[b : b + 1, :, of_keys], value[b : b + 1, :, of_keys]
            alone = retrieve(*parts, **(options | {"mask": mask}))
            if options["return_trace"]:
                torch.testing.assert_close(whole.states[:, b, :, of_queries], alone.states[:, 0], rtol=0, atol=1e-12)
                torch.testing.assert_close(whole.weights[b, :, of_queries][..., of_keys], alone.weights[0])
            got, expected = (x.output if options["return_trace"] else x for x in (whole, alone))
            torch.testing.assert_close(got[b, :, of_queries], expected[0], rtol=0, atol=1e-12)


def test_segments_with_all_other_limits():
    query, key, value = torch.randn(3, 2, 4, 7, 8, dtype=torch.float64).unbind()
    numbers = torch.tensor([[0, 0, 0, 0, 1, 1, 1], [5, 5, -5, -5, -5, -5, 2]])
    limits = {
        **{
            "is_causal": True,
            "sliding_window": 3,
            "mask": torch.rand(2, 1, 1, 7) > 0.2,
            "bias": torch.randn(1, 4, 7, 7),
        },
        **{"sinks": torch.randn(4), "softcap": 3.0, "steps": 3, "alpha": torch.tensor([1.2, 1.5, 1.7, 2.0])},
    }
    result = retrieve(query, key, value, segments=(numbers, numbers), **limits)
    limits["mask"] = limits["mask"] & (numbers[:, :, None] == numbers[:, None])[:, None]
    torch.testing.assert_close(result, retrieve(query, key, value, **limits))


def test_segments_with_keys_that_lie_apart():
    query, store = torch.randn(2, 2, 3, 8), torch.randn(1, 2, 20, 8)
    places = torch.randint(20, (2, 6))
    numbers = torch.tensor([[1, 2, 1]]), torch.tensor([[1, 1, 1, 2, 2, 2]])
    together = store[0].transpose(0, 1)[places].transpose(1, 2)
    expected = retrieve(query, together, together, segments=numbers)
    torch.testing.assert_close(retrieve(query, store, store, places=places, segments=numbers), expected)


@pytest.mark.parametrize(
    "segments, error, message",
    [
        (torch.zeros(1, 5), TypeError, "segments must be two tensors.*got Tensor"),
        ((torch.zeros(1, 5),), TypeError, "segments must be two tensors.*got 1 of them"),
        (
            (torch.zeros(1, 5), torch.zeros(1, 7)),
            TypeError,
            "segments of queries must be a tensor of integers.*float32",
        ),
        (([[0] * 5], torch.zeros(1, 7)), TypeError, "segments of queries must be a tensor of integers, got list"),
        (
            (torch.zeros(1, 5).int(), torch.zeros(1, 7).bool()),
            TypeError,
            "segments of keys .* integers, got torch.bool",
        ),
        (
            (torch.zeros(5).int(), torch.zeros(7).int()),
            ValueError,
            r"queries must have the shape \(2 or 1, 5\).*got \(5,\)",
        ),
        ((torch.zeros(3, 5).int(), torch.zeros(1, 7).int()), ValueError, r"queries .* \(2 or 1, 5\).*got \(3, 5\)"),
        ((torch.zeros(2, 5).int(), torch.zeros(2, 5).int()), ValueError, r"keys must have the shape \(2 or 1, 7\)"),
        (
            (torch.zeros(2, 5, device="meta").int(), torch.zeros(2, 7).int()),
            ValueError,
            "queries are on meta, .* on cpu",
        ),
        ((torch.zeros(1, 5).long(), torch.full((1, 7), 2**32)), ValueError, "keys must fit 32 bits.*from 4294967296"),
    ],
)
def test_bad_segments_are_named(segments, error, message):
    with pytest.raises(error, match=message):
        retrieve(torch.randn(2, 2, 5, 4), torch.randn(2, 1, 7, 4), torch.randn(2, 1, 7, 4), segments=segments)
