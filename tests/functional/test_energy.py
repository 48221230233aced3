import math

import pytest
import torch
from torch.autograd import gradcheck

from hf_sparse_hopfield.functional import (
    capacity_bound,
    capacity_constant,
    conjugate,
    energy,
    energy_gradient,
    entmax,
    retrieval_errors,
    retrieve,
    separation,
    sparsemax,
    sphere_radius,
    support_size,
    update,
)


ALPHAS = [1.0, 1.1, 1.5, 1.9, 2.0]


def random_instances(count=2000, memories=12, dimension=6):
    patterns = torch.randn(count, memories, dimension, dtype=torch.float64)
    states = 2 * torch.randn(count, dimension, dtype=torch.float64)
    beta = torch.exp(4 * torch.rand(count, dtype=torch.float64) - 2)
    return states, patterns, beta


@pytest.mark.parametrize("alpha", ALPHAS)
def test_energy_never_rises(alpha):
    states, patterns, beta = random_instances()
    before = energy(states, patterns, beta, alpha)
    for _ in range(6):
        states = update(states, patterns, beta, alpha)
        after = energy(states, patterns, beta, alpha)
        assert (after <= before + 1e-10).all()
        before = after


def test_without_the_factor_the_energy_can_rise():
    states, patterns, beta = random_instances()

    def printed_energy(x):
        return x.square().sum(-1) / 2 - conjugate(beta[:, None] * (patterns @ x[..., None]).squeeze(-1))

    assert (printed_energy(update(states, patterns, beta)) > printed_energy(states) + 1e-3).any()


@pytest.mark.parametrize("alpha", ALPHAS)
def test_gradient_of_the_conjugate_is_the_normalizer(alpha):
    scores = (3 * torch.randn(3000, 10, dtype=torch.float64)).requires_grad_()
    (gradient,) = torch.autograd.grad(conjugate(scores, alpha).sum(), scores)
    torch.testing.assert_close(gradient, entmax(scores, alpha).detach(), rtol=0, atol=1e-10)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_conjugate_dominates_every_other_point(alpha):
    scores = torch.randn(500, 8, dtype=torch.float64)
    other = torch.rand(500, 8, dtype=torch.float64).softmax(-1)
    psi = (other * other.log()) if alpha == 1 else (other**alpha - other) / (alpha * (alpha - 1))
    assert (conjugate(scores, alpha) >= (scores * other - psi).sum(-1) - 1e-12).all()


def test_known_conjugates():
    scores = torch.randn(50, 9, dtype=torch.float64)
    p = sparsemax(scores)
    gini = scores.square().sum(-1) / 2 - (p - scores).square().sum(-1) / 2 + 0.5
    torch.testing.assert_close(conjugate(scores), gini)
    torch.testing.assert_close(conjugate(scores, 1.0), scores.logsumexp(-1))
    torch.testing.assert_close(conjugate(scores.T, 1.5, dim=0), conjugate(scores, 1.5))


def test_conjugate_with_masks():
    scores = torch.randn(4, 6, dtype=torch.float64)
    mask = torch.tensor([1, 1, 0, 1, 0, 0], dtype=torch.bool)
    torch.testing.assert_close(conjugate(scores, 1.5, mask=mask), conjugate(scores[:, mask], 1.5))
    assert (conjugate(scores, mask=torch.zeros(6, dtype=torch.bool)) == -torch.inf).all()


@pytest.mark.parametrize("alpha", ALPHAS)
def test_energy_gradient(alpha):
    states, patterns, beta = random_instances()
    states.requires_grad_()
    (gradient,) = torch.autograd.grad(energy(states, patterns, beta, alpha).sum(), states)
    explicit = energy_gradient(states, patterns, beta, alpha)
    torch.testing.assert_close(gradient, explicit.detach(), rtol=0, atol=1e-9)
    torch.testing.assert_close(explicit, states - update(states, patterns, beta, alpha))


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
def test_energy_gradcheck(alpha):
    states, patterns, _ = random_instances(3)
    assert gradcheck(
        lambda x, m: energy(x, m, 0.7, alpha), (states.requires_grad_(), patterns.requires_grad_()), atol=1e-4
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("alpha", [1.0, 1.0 + 1e-6, 1.00001, 1.3, 2.0])
def test_gradient_of_the_conjugate_in_alpha(alpha, dtype):
    scores = torch.randn(20, 8, dtype=torch.float64)
    tensor = torch.tensor(alpha, dtype=dtype, requires_grad=True)
    conjugate(scores.to(dtype), tensor).sum().backward()
    ends = (alpha, alpha + 1e-5) if alpha < 1.5 else (alpha - 1e-5, alpha)
    low, high = (conjugate(scores, a).sum().item() for a in ends)
    assert tensor.grad.item() == pytest.approx((high - low) / 1e-5, rel=1e-4)


def test_energy_with_settings_of_every_state():
    states, patterns, beta = random_instances(50)
    alpha = 1 + torch.rand(50, dtype=torch.float64)
    together = energy(states, patterns, beta, alpha)
    for i in range(50):
        alone = energy(states[i], patterns[i], beta[i].item(), alpha[i].item())
        torch.testing.assert_close(together[i], alone)
    descent = energy(update(states, patterns, beta, alpha), patterns, beta, alpha)
    assert (descent <= together + 1e-10).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_and_autocast_are_computed_in_float32(dtype):
    states, patterns = (40 * torch.randn(30, 64)).to(dtype), (40 * torch.randn(10, 64)).to(dtype)
    expected = energy(states.float(), patterns.float(), 0.1)
    torch.testing.assert_close(energy(states, patterns, 0.1), expected)
    torch.testing.assert_close(separation(patterns), separation(patterns.float()))
    assert update(states, patterns).dtype == dtype
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(energy(states.float(), patterns.float(), 0.1), expected)


def test_one_hot_exactly_when_the_gap_is_at_least_one():
    scores = torch.randn(5000, 6, dtype=torch.float64) * 2
    top = scores.topk(2).values
    gap = top[:, 0] - top[:, 1]
    assert torch.equal(support_size(scores) == 1, gap >= 1)
    assert support_size(torch.tensor([2.0, 1.0, 0.0])) == 1
    assert support_size(torch.tensor([2.0, 1.0 + 1e-6, 0.0])) == 2


def test_fixed_points_are_stationary():
    patterns = torch.randn(200, 5, 8, dtype=torch.float64)
    states = patterns[:, 0]
    for _ in range(300):
        states = update(states, patterns, 2.0)
    settled = (update(states, patterns, 2.0) - states).norm(dim=-1) < 1e-12
    assert settled.float().mean() > 0.9
    assert (energy_gradient(states, patterns, 2.0)[settled].norm(dim=-1) < 1e-12).all()


def test_large_beta_retrieves_exactly():
    patterns = torch.nn.functional.normalize(torch.randn(100, 10, 32, dtype=torch.float64), dim=-1)
    noisy = patterns[:, 3] + 0.02 * torch.randn(100, 32, dtype=torch.float64)
    assert torch.equal(update(noisy, patterns, 1e4), patterns[:, 3])


def test_energy_agrees_with_the_trace_of_retrieve():
    query, key = torch.randn(2, 2, 5, 8, dtype=torch.float64), torch.randn(2, 2, 7, 8, dtype=torch.float64)
    trace = retrieve(query, key, key, scaling=0.5, beta=3.0, steps=4, return_trace=True)
    for state, value in zip(trace.states, trace.energies, strict=True):
        torch.testing.assert_close(value, energy(state, key[:, :, None], beta=1.5))
    torch.testing.assert_close(trace.output, update(trace.states[-1], key[:, :, None], beta=1.5))


def test_separation_and_radius():
    patterns = torch.randn(3, 6, 4)
    for batch, delta, radius in zip(patterns, separation(patterns), sphere_radius(patterns), strict=True):
        for mu in range(6):
            others = [nu for nu in range(6) if nu != mu]
            expected = batch[mu] @ batch[mu] - max(batch[mu] @ batch[nu] for nu in others)
            torch.testing.assert_close(delta[mu], expected)
        closest = min((batch[m] - batch[n]).norm() for m in range(6) for n in range(m))
        torch.testing.assert_close(radius, closest / 2)
    assert separation(torch.tensor([[1.0, 0.0], [5.0, 0.0]]))[0] == -4  # signed


def test_separation_of_one_makes_retrieval_exact():
    patterns = 2 * torch.randn(500, 5, 6, dtype=torch.float64)
    exact = (update(patterns, patterns[:, None]) == patterns).all(-1)
    assert torch.equal(exact, separation(patterns) >= 1)


def test_sparse_error_is_not_always_smaller():
    """The paper's theorem 2.2 says it is, for every state in the sphere; it is not."""
    patterns = torch.randn(5000, 10, 5, dtype=torch.float64)
    direction = torch.nn.functional.normalize(torch.randn(5000, 5, dtype=torch.float64), dim=-1)
    state = patterns[:, 0] + sphere_radius(patterns)[:, None] * torch.rand(5000, 1, dtype=torch.float64) * direction
    sparse, dense = retrieval_errors(state, patterns, patterns[:, 0])
    assert (sparse > dense + 1e-3).any()
    assert (sparse < dense - 1e-3).any()


def test_capacity():
    assert capacity_constant(20, 3, beta=1, failure_probability=0.001) == pytest.approx(3.1546, abs=1e-4)
    assert capacity_constant(75, 1, beta=1, failure_probability=0.001) == pytest.approx(1.3718, abs=1e-4)
    assert capacity_bound(20, 3) == pytest.approx(math.sqrt(0.001) * 3.1546 ** (19 / 4), rel=1e-3)
    # c solves its own definition: b / c = W0(exp(a + ln b)) <=> b / c + ln(b / c) = a + ln b
    for dimension, factor, beta, p in [(2, 0.1, 0.3, 0.5), (300, 2.0, 4.0, 1e-6), (50, 10.0, 10.0, 0.01)]:
        a = 2 / (dimension - 1) * (1 + math.log(2 * beta * factor**2 * p * (dimension - 1)))
        b = 2 * factor**2 * beta / 5
        w = b / capacity_constant(dimension, factor, beta, p)
        assert w + math.log(w) == pytest.approx(a + math.log(b), abs=1e-10)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: energy(torch.zeros(3), torch.zeros(2, 4)), r"\(3,\).*\(2, 4\)"),
        (lambda: energy(torch.zeros(3), torch.zeros(3)), "memories"),
        (lambda: energy(torch.zeros(3), torch.zeros(2, 3), beta=0.0), "beta.*0.0"),
        (lambda: energy(torch.zeros(3), torch.zeros(2, 3), beta=torch.tensor(-1.0)), "beta.*-1.0"),
        (lambda: energy(torch.zeros(3), torch.zeros(2, 3), beta=torch.tensor(1)), "beta.*int64"),
        (lambda: energy(torch.zeros(3), torch.zeros(2, 3), beta="1"), "beta.*'1'"),
        (lambda: energy(torch.zeros(3), torch.zeros(2, 3), alpha=3.0), "alpha.*3.0"),
        (lambda: energy(torch.zeros(3), torch.zeros(2, 3), beta=torch.tensor(torch.inf)), "beta.*inf"),
        (
            lambda: energy(torch.zeros(5, 3), torch.zeros(4, 3), beta=torch.ones(5, 1)),
            r"beta of shape \(5, 1\).*\(5,\)",
        ),
        (lambda: energy(torch.zeros(5, 3), torch.zeros(4, 3), alpha=torch.ones(2)), r"alpha of shape \(2,\)"),
        (lambda: energy(torch.zeros(5, 3), torch.zeros(2, 4, 3)), "do not broadcast"),
        (lambda: energy([0.0], torch.zeros(4, 3)), "state.*list"),
        (lambda: conjugate([1.0]), "scores.*list"),
        (lambda: conjugate(torch.ones(3, dtype=torch.int64)), "scores.*int64"),
        (lambda: separation(torch.ones(3, 3, dtype=torch.int64)), "memories.*int64"),
        (lambda: separation(torch.zeros(1, 3)), "two patterns"),
        (lambda: sphere_radius(torch.zeros(3)), "memories.*2 dimensions"),
        (lambda: capacity_constant(1, 1.0), "dimension.*1"),
        (lambda: capacity_constant(10, 0.0), "radius_factor"),
        (lambda: capacity_constant(10, 1.0, failure_probability=1.0), "failure_probability"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises((ValueError, TypeError), match=words):
        call()
