import entmax as entmax_package
import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck

from hf_sparse_hopfield.functional import entmax, normalizers, sparsemax, support, support_size, threshold

from . import oracle


ALPHAS = [1.0, 1.05, 1.2, 4 / 3, 1.5, 1.75, 2.0]
alphas = st.one_of(st.sampled_from([1.0, 1.5, 2.0]), st.floats(1.0, 2.0))


@st.composite
def score_rows(draw, dtype=torch.float64):
    """Rows of many kinds: flat, spread, tied, partly masked, large."""
    rows, n = draw(st.integers(1, 4)), draw(st.integers(1, 40))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    scores = torch.randn(rows, n, generator=generator, dtype=torch.float64) * draw(
        st.sampled_from([0.0, 1e-3, 1, 5, 100])
    )
    if draw(st.booleans()):
        scores = (scores * 2).round() / 2  # ties
    if draw(st.booleans()):
        scores = scores.masked_fill(torch.rand(rows, n, generator=generator) < 0.4, -torch.inf)
    return (scores + draw(st.sampled_from([0.0, -30.0, 7.0]))).to(dtype)


@given(score_rows(), alphas)
@example(torch.full((1, 30), 0.0, dtype=torch.float64), 1.0000001)
@example(torch.linspace(0, -50, 40, dtype=torch.float64)[None], 1.01)
def test_float64_is_exact(scores, alpha):
    expected = oracle.entmax(scores.numpy(), alpha)
    if 1 < alpha < 1.001:  # there the oracle's power 1 / (alpha - 1) loses digits; ours does not
        np.testing.assert_allclose(entmax(scores, alpha).sum(-1), (scores > -torch.inf).any(-1).double(), atol=1e-12)
        np.testing.assert_allclose(entmax(scores, alpha), expected, rtol=0, atol=1e-9)
    else:
        np.testing.assert_allclose(entmax(scores, alpha), expected, rtol=0, atol=1e-12)


@given(score_rows(dtype=torch.float32), alphas)
@example(torch.linspace(0, -50, 40)[None], 1.0000002)
def test_float32_is_exact(scores, alpha):
    if 1 < alpha < 1.001:  # where the oracle is not; our float64 is tested above
        expected = entmax(scores.double(), alpha)
    else:
        expected = oracle.entmax(scores.double().numpy(), alpha)
    weights = entmax(scores, alpha)
    assert weights.dtype == torch.float32
    np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("alpha", [1.0001, 1.1, 1.25, 1.5, 1.75, 2.0])
def test_the_solver_takes_few_steps(alpha, dtype, monkeypatch):
    calls = []
    powers = normalizers.powers
    monkeypatch.setattr(normalizers, "powers", lambda *a: calls.append(1) or powers(*a))
    for spread in (0.1, 1, 10):
        calls.clear()
        entmax(spread * torch.randn(2000, 100, dtype=dtype), alpha)
        assert len(calls) <= 16


@given(score_rows(), alphas)
def test_bits_do_not_depend_on_other_rows(scores, alpha):
    others = torch.randn(20, scores.shape[-1], dtype=torch.float64)
    assert torch.equal(entmax(torch.cat([scores, others]), alpha)[: len(scores)], entmax(scores, alpha))


@pytest.mark.parametrize("alpha", [1.2, 1.5, 1.9, 2.0])
@pytest.mark.parametrize("n", [1000, 100000])
def test_flat_rows_in_float32_sum_to_one(alpha, n):
    for scores in (torch.zeros(1, n), 1e-6 * torch.randn(1, n)):
        weights = entmax(scores, alpha).double()
        assert weights.sum().item() == pytest.approx(1, abs=1e-6)
        torch.testing.assert_close(weights, entmax(scores.double(), alpha), rtol=0.02, atol=1e-9)


@given(score_rows(), st.lists(alphas, min_size=4, max_size=4))
def test_alpha_may_be_a_tensor(scores, row_alphas):
    alpha = torch.tensor(row_alphas, dtype=torch.float64)[: scores.shape[0], None]
    together = entmax(scores, alpha)
    for row, a, weights in zip(scores, alpha, together, strict=True):
        torch.testing.assert_close(weights, entmax(row, a.item()), rtol=0, atol=1e-13)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_agrees_with_the_entmax_package(alpha):
    scores = torch.randn(20, 50, dtype=torch.float64) * 3
    theirs = {
        1.0: lambda z: z.softmax(-1),
        1.5: lambda z: entmax_package.entmax15(z, -1),
        2.0: lambda z: entmax_package.sparsemax(z, -1),
    }.get(alpha, lambda z: entmax_package.entmax_bisect(z, alpha, n_iter=100))
    torch.testing.assert_close(entmax(scores, alpha), theirs(scores), rtol=0, atol=1e-12)


def test_alpha_gradient_agrees_with_the_entmax_package():
    scores, direction = torch.randn(2, 20, 50, dtype=torch.float64).unbind()
    ours, theirs = (torch.full((20, 1), 1.3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    (entmax(scores, ours) * direction).sum().backward()
    (entmax_package.entmax_bisect(scores, theirs, n_iter=100) * direction).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_gradients(alpha):
    scores = (torch.randn(4, 12, dtype=torch.float64) * 2).requires_grad_()
    assert gradcheck(lambda z: entmax(z, alpha), scores)
    assert gradgradcheck(lambda z: entmax(z, alpha), scores)


def test_gradients_with_alpha():
    scores = (torch.randn(5, 12, dtype=torch.float64) * 2).requires_grad_()
    alpha = torch.tensor([1.02, 1.3, 1.5, 1.7, 1.98], dtype=torch.float64)[:, None].requires_grad_()
    assert gradcheck(entmax, (scores, alpha))
    assert gradgradcheck(entmax, (scores, alpha))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("end", "inward"), [(1.0, 1e-6), (2.0, -1e-6)])
def test_alpha_gradient_at_the_ends(end, inward, dtype):
    scores, direction = (torch.randn(2, 6, 20, dtype=torch.float64) * 2).unbind()
    difference = ((entmax(scores, end + inward) - entmax(scores, end)) * direction).sum() / inward
    alpha = torch.tensor(end, dtype=dtype, requires_grad=True)
    (entmax(scores.to(dtype), alpha) * direction.to(dtype)).sum().backward()
    torch.testing.assert_close(alpha.grad.double(), difference, rtol=1e-4, atol=1e-4)


@given(st.floats(0, 1e-4), st.booleans())
def test_alpha_gradient_is_smooth_towards_the_ends(distance, low):
    scores = torch.randn(1, 20, generator=torch.Generator().manual_seed(3)) * 2
    gradients = []
    for value in (1.0, 1 + distance) if low else (2.0, 2 - distance):
        alpha = torch.tensor([[value]], requires_grad=True)
        entmax(scores, alpha)[0, scores.argmax()].backward()
        gradients.append(alpha.grad.item())
    assert np.isfinite(gradients).all()
    assert gradients[0] == pytest.approx(gradients[1], abs=1e-3)


def test_alpha_gradient_at_the_edge_of_the_support():
    for alpha in (1.7, 1.95):
        edge = torch.tensor(-1 / (alpha - 1))
        for ulps in range(-6, 7):
            score = edge * (1 + ulps * 2**-23)
            tensor = torch.tensor(alpha, requires_grad=True)
            entmax(torch.stack([torch.tensor(0.0), score]), tensor)[0].backward()
            assert tensor.grad.isfinite()


def test_second_derivative_in_alpha_at_one():
    scores, direction = torch.randn(2, 5, dtype=torch.float64).unbind()

    def slope(value):
        alpha = torch.tensor(value, dtype=torch.float64, requires_grad=True)
        (first,) = torch.autograd.grad((entmax(scores, alpha) * direction).sum(), alpha, create_graph=True)
        return first, alpha

    first, alpha = slope(1.0)
    (second,) = torch.autograd.grad(first, alpha)
    difference = (slope(1.0 + 1e-5)[0] - first) / 1e-5
    torch.testing.assert_close(second, difference.detach(), rtol=1e-3, atol=1e-4)


def test_scores_whose_difference_overflows():
    largest = torch.finfo(torch.float32).max
    for alpha in (1.0, 1.3, 1.5, 2.0, torch.tensor(1.0)):
        assert entmax(torch.tensor([largest, -largest]), alpha).tolist() == [1.0, 0.0]


def test_threshold_has_no_gradient():
    alpha = torch.tensor(1.5, requires_grad=True)
    assert not threshold(torch.randn(4, requires_grad=True), alpha).requires_grad


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_half_precision_rounds_once(dtype, alpha):
    scores = (torch.randn(50, 200) * 4).to(dtype)
    weights = entmax(scores, alpha)
    assert weights.dtype == dtype
    assert torch.equal(weights, entmax(scores.float(), alpha).to(dtype))
    # each weight is off by half a unit in its last place at most, so their sum by half an eps
    torch.testing.assert_close(
        weights.double().sum(-1), torch.ones(50).double(), rtol=0, atol=torch.finfo(dtype).eps / 2
    )


@given(score_rows(), alphas, st.integers(0, 2))
def test_any_dimension(scores, alpha, dim):
    cube = torch.stack([scores, scores.flip(-1)])
    torch.testing.assert_close(entmax(cube.movedim(-1, dim), alpha, dim=dim).movedim(dim, -1), entmax(cube, alpha))


@pytest.mark.parametrize("alpha", ALPHAS)
def test_masks(alpha):
    scores = torch.randn(6, 10, dtype=torch.float64, requires_grad=True)
    mask = torch.rand(6, 10) < 0.5
    mask[0] = False
    weights = entmax(scores, alpha, mask=mask)
    assert (weights[~mask] == 0).all()
    assert (weights[0] == 0).all()
    torch.testing.assert_close(weights.sum(-1), mask.any(-1).double())
    torch.testing.assert_close(weights, entmax(scores.masked_fill(~mask, -torch.inf), alpha))
    weights.square().sum().backward()
    assert torch.isfinite(scores.grad).all()
    assert (scores.grad[~mask] == 0).all()


@given(score_rows(), alphas, st.floats(-50, 50))
def test_shift_and_permutation(scores, alpha, shift):
    weights = entmax(scores, alpha)
    torch.testing.assert_close(entmax(scores + shift, alpha), weights, rtol=0, atol=1e-10)
    order = torch.randperm(scores.shape[-1])
    torch.testing.assert_close(entmax(scores[:, order], alpha), weights[:, order], rtol=0, atol=1e-12)


@given(st.integers(2, 30), st.floats(1.05, 2.0), st.integers(0, 10**6))
def test_support_shrinks_as_beta_grows(n, alpha, seed):
    scores = torch.randn(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    sizes = [support_size(beta * scores, alpha).item() for beta in (0.1, 0.5, 1, 3, 10, 100)]
    assert sizes == sorted(sizes, reverse=True)


@given(score_rows(), alphas)
def test_threshold_support_and_size(scores, alpha):
    weights, tau = entmax(scores, alpha), threshold(scores, alpha)
    finite = (scores > -torch.inf).any(-1, keepdim=True)
    if alpha == 1:
        assert torch.equal(tau == -torch.inf, finite)
    elif alpha > 1.01:
        cut = ((alpha - 1) * scores - tau).clamp_min(0) ** (1 / (alpha - 1))
        torch.testing.assert_close(torch.where(finite, cut, 0.0), weights, rtol=0, atol=1e-9)
    if alpha == 2:
        assert (tau >= scores.amax(-1, keepdim=True) - 1 - 1e-12)[finite].all()
    assert torch.equal(tau == torch.inf, ~finite)
    assert torch.equal(support(scores, alpha), weights > 0)
    assert torch.equal(support_size(scores, alpha), (weights > 0).sum(-1))


@pytest.mark.parametrize("alpha", ALPHAS)
def test_nan_stays_in_its_row(alpha):
    scores = torch.randn(3, 7)
    clean = entmax(scores, alpha)
    scores[1, 2] = torch.nan
    weights = entmax(scores, alpha)
    assert weights[1].isnan().any()
    assert torch.equal(weights[[0, 2]], clean[[0, 2]])


@pytest.mark.parametrize("alpha", [1.0, 1.3, 1.5, 2.0])
@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 4)])
def test_empty(alpha, shape):
    assert entmax(torch.zeros(shape), alpha).shape == shape


@pytest.mark.parametrize("n", [2000, 20000])
@pytest.mark.parametrize("alpha", [1.1, 1.5, 2.0])
def test_long_rows_in_float32(n, alpha):
    scores = torch.randn(4, n) * torch.tensor([[0.0], [1e-4], [1.0], [6.0]])
    torch.testing.assert_close(entmax(scores, alpha).double(), entmax(scores.double(), alpha), rtol=1e-3, atol=1e-6)


def test_solver_survives_geometric_rows():
    # each Newton step can discard few entries of such a row: the slowest kind for sparsemax
    scores = -torch.logspace(-15, 0, 400, base=2, dtype=torch.float64)
    np.testing.assert_allclose(sparsemax(scores), oracle.entmax_row(scores.numpy(), 2.0), atol=1e-12)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"alpha": 0.9}, "alpha.*0.9"),
        ({"alpha": 2.5}, "alpha.*2.5"),
        ({"alpha": float("nan")}, "alpha.*nan"),
        ({"alpha": "2"}, "alpha.*'2'"),
        ({"alpha": True}, "alpha.*True"),
        ({"alpha": torch.tensor([3.0])}, "alpha.*3.0"),
        ({"alpha": torch.tensor([1, 2])}, "alpha.*int64"),
        ({"alpha": torch.full((3,), 1.5)}, "alpha of shape"),
        ({"dim": 2}, "dim=2"),
        ({"mask": torch.ones(2, 4)}, "mask must be a boolean"),
        ({"mask": [True] * 4}, "mask.*list"),
        ({"dim": None}, "dim=None"),
        ({"scores": [1.0]}, "scores.*list"),
        ({"mask": torch.ones(5, dtype=torch.bool)}, "mask of shape"),
        ({"scores": torch.ones(2, 4, dtype=torch.int64)}, "scores.*int64"),
        ({"scores": torch.tensor(1.0)}, "scores"),
    ],
)
def test_bad_input(arguments, words):
    with pytest.raises((ValueError, TypeError), match=words):
        entmax(**{"scores": torch.zeros(2, 4), **arguments})


@pytest.mark.parametrize("alpha", [1.0, 1.3, 1.5, 2.0])
def test_compile(alpha):
    scores = torch.randn(3, 9, requires_grad=True)
    compiled = torch.compile(lambda z: entmax(z, alpha).square().sum(), fullgraph=True, backend="aot_eager")
    (expected,) = torch.autograd.grad(entmax(scores, alpha).square().sum(), scores)
    (gradient,) = torch.autograd.grad(compiled(scores), scores)
    torch.testing.assert_close(gradient, expected)


def test_threshold_and_support_carry_no_gradient():
    scores = torch.randn(3, 5, requires_grad=True)
    alpha = torch.full((3, 1), 1.5, requires_grad=True)
    assert not threshold(scores, alpha).requires_grad
    assert not support(scores, alpha).requires_grad
