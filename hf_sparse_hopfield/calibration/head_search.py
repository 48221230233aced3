# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The search for beta (and alpha) of every head, while batches stream by: sums over rows are all that it keeps."""

import dataclasses
import math
from dataclasses import dataclass
from typing import NamedTuple

import torch

from ..backends import RetrievalProblem
from ..integration.binding import LayerRetrieval
from ..observation import Observer, Setting, evaluate, evaluate_dense, sampled


OBJECTIVES = ("output", "kl", "support")

# beta = 2 ** exponent. From the first batch a head gets five exponents around its best coarse one; those of all batches
# are summed, and a parabola through the best three gives the exponent in between. A small support may take a beta that
# no small error does.
_COARSE = tuple(range(-7, 3))
_COARSE_FOR_SUPPORT = tuple(range(-7, 9))
_FINE = (-1.0, -0.5, 0.0, 0.5, 1.0)
_COUNTED = 4


@dataclass(frozen=True)
class SearchOptions:
    """
    How to search.

    Args:
        objective (`str`): One of `OBJECTIVES`.
        target_support (`float`, *optional*): For `"support"`: the share of the visible keys that is to get weight.
        layerwise (`bool`): Let the model go on with the best settings so far instead of dense attention.
        max_error (`float`): Where several alphas are tried: the error that the chosen one may have.
        rows (`int`): How many queries of a batch to look at in each attention module.
        seed (`int`): Chooses these queries.
    """

    objective: str
    target_support: float | None
    layerwise: bool
    max_error: float
    rows: int
    seed: int

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise ValueError(f"objective must be one of {OBJECTIVES}, got {self.objective!r}.")
        if (self.objective == "support") != (self.target_support is not None):
            raise ValueError(
                "target_support goes with objective='support', got "
                f"target_support={self.target_support}, objective={self.objective!r}."
            )
        if self.target_support is not None and not 0 < self.target_support < 1:
            raise ValueError(
                f"target_support must lie in (0, 1), a share of the visible keys, got {self.target_support}."
            )
        if not 0 < self.max_error < math.inf:
            raise ValueError(f"max_error must be a positive number, got {self.max_error!r}.")
        if isinstance(self.rows, bool) or not isinstance(self.rows, int) or self.rows < 1:
            raise ValueError(f"rows must be an integer of at least 1, got {self.rows!r}.")


@dataclass
class HeadSums:
    """
    What has been summed up for one attention module and one alpha.

    Args:
        exponents (`torch.Tensor` of shape `(betas, heads)`): log2 of the betas that are tried.
        error (`torch.Tensor` of shape `(betas, heads)`): Sum of the objective over rows.
        support (`torch.Tensor` of shape `(betas, heads)`): Sum of the support sizes over rows.
    """

    exponents: torch.Tensor
    error: torch.Tensor
    support: torch.Tensor


class Choice(NamedTuple):
    """What was chosen for the heads of an attention module, one number each: error and support come with it."""

    alpha: torch.Tensor
    beta: torch.Tensor
    error: torch.Tensor
    support: torch.Tensor


class HeadSearch(Observer):
    """
    Tries betas (and alphas) on what the heads of a model retrieve.

    Args:
        alphas (`dict[str, list[float | torch.Tensor]]`):
            For each attention module the alphas to try, rising; if there are several, each head gets one between them.
        per_head (`dict[str, bool]`): Whether an attention module can have one setting per head.
        options ([`SearchOptions`]): How to search.
    """

    def __init__(self, alphas: dict[str, list[Setting]], per_head: dict[str, bool], options: SearchOptions) -> None:
        self.alphas, self.per_head, self.options = alphas, per_head, options
        self.generator = torch.Generator().manual_seed(options.seed)
        self.sums: dict[str, list[HeadSums]] = {}
        # What errors are relative to, per head: the energy of the dense outputs, or the number of rows for "kl".
        self.scale: dict[str, torch.Tensor] = {}
        self.visible: dict[str, torch.Tensor] = {}

    def observe(self, name: str, problem: RetrievalProblem) -> None:
        problem, visible = sampled(problem, self.options.rows, self.generator)
        # Outputs come from the fastest backend; weights, which only the slowest one gives, are needed of fewer rows.
        counted, counted_visible = problem, visible
        if self.options.objective == "output":
            counted, counted_visible = sampled(problem, max(1, self.options.rows // _COUNTED), self.generator)
        dense = evaluate_dense(problem, return_weights=self.options.objective == "kl")
        heads = problem.query.shape[1]

        def total(tensor: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:  # (batch, heads, queries) -> (heads,)
            unused = (visible == 0).expand(-1, heads, -1)
            summed = tensor.masked_fill(unused, 0).double().sum((0, 2)).cpu()
            return summed if self.per_head[name] else summed.sum(0, keepdim=True)

        def attempt(alpha: Setting, exponents: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            beta = torch.exp2(exponents).float()
            result = evaluate(counted, beta, alpha, return_weights=True, backend="reference")
            support = total((result.weights > 0).sum(-1).float(), counted_visible)
            if self.options.objective == "kl":
                ratio = (result.weights / dense.weights.clamp_min(1e-30)).clamp_min(1e-30).log()
                return total((result.weights * ratio).float().sum(-1), visible), support
            output = result.output if counted is problem else evaluate(problem, beta, alpha).output
            return total((output - dense.output).float().square().sum(-1), visible), support

        size = dense.output.float().square().sum(-1)
        # A divergence of weights knows nothing of the values: it is a mean over rows.
        scale = total(torch.ones_like(size) if self.options.objective == "kl" else size, visible)
        seen = total(counted_visible.expand(-1, heads, -1).float(), counted_visible)
        if name not in self.sums:
            self.sums[name] = [self._fine(attempt, alpha, seen) for alpha in self.alphas[name]]
        self.scale[name] = self.scale.get(name, 0) + scale
        self.visible[name] = self.visible.get(name, 0) + seen
        for alpha, sums in zip(self.alphas[name], self.sums[name], strict=True):
            for i, exponents in enumerate(sums.exponents):
                error, support = attempt(alpha, exponents)
                sums.error[i] += error
                sums.support[i] += support

    def _fine(self, attempt, alpha: Setting, visible: torch.Tensor) -> HeadSums:
        exponents = _COARSE_FOR_SUPPORT if self.options.objective == "support" else _COARSE
        coarse = [attempt(alpha, torch.full_like(visible, exponent)) for exponent in exponents]
        error, support = (torch.stack(column) for column in zip(*coarse, strict=True))
        if self.options.objective == "support":
            error = (support / visible - self.options.target_support).abs()
        centre = torch.tensor(exponents, dtype=torch.float64)[error.argmin(0)]
        return _no_sums(centre + torch.tensor(_FINE, dtype=torch.float64)[:, None])

    def measuring(self, alphas: dict[str, Setting], betas: dict[str, torch.Tensor]) -> "HeadSearch":
        """A search that tries nothing but these settings of each attention module."""
        alone = {name: [alpha] for name, alpha in alphas.items()}
        measuring = HeadSearch(alone, self.per_head, dataclasses.replace(self.options, layerwise=False))
        measuring.sums = {name: [_no_sums(beta.double().log2().reshape(1, -1))] for name, beta in betas.items()}
        return measuring

    def settings(self, name: str, retrieval: LayerRetrieval) -> tuple[Setting, Setting] | None:
        if not self.options.layerwise or name not in self.sums:
            return None
        chosen = self.choose(name)
        alpha = self.alphas[name][0] if len(self.alphas[name]) == 1 else chosen.alpha.float()
        return chosen.beta.float(), alpha

    def choose(self, name: str, max_error: float | None = None) -> Choice:
        """
        What fits the heads of an attention module best, after the batches so far.

        Args:
            name (`str`): Path of the attention module.
            max_error (`float`, *optional*):
                Where several alphas were tried: the largest one with this error is chosen. By default that of the options.
        """
        if len(self.alphas[name]) > 1:
            return self._largest_alphas(name, self.options.max_error if max_error is None else max_error)
        alpha = torch.as_tensor(self.alphas[name][0], dtype=torch.float64).reshape(-1)
        return Choice(alpha, self.best(name), **self.expected(name))

    def _largest_alphas(self, name: str, max_error: float) -> Choice:
        """For each head the largest alpha whose error is allowed, between the alphas that were tried and 1, the dense head."""
        count = len(self.alphas[name])
        betas = torch.stack([self.best(name, index) for index in range(count)])
        expected = [self.expected(name, index) for index in range(count)]
        errors, supports = (torch.stack([each[key] for each in expected]) for key in ("error", "support"))
        ones, zeros = torch.ones_like(betas[:1]), torch.zeros_like(betas[:1])
        alphas = torch.tensor([1.0, *self.alphas[name]], dtype=torch.float64)
        betas, errors, supports = (torch.cat(pair) for pair in ((ones, betas), (zeros, errors), (ones, supports)))
        errors = errors.cummax(0).values
        # number of the first alpha that is too large, or of the last one
        last = (errors <= max_error).sum(0).clamp_max(count)
        low, high = (last - 1).clamp_min(0)[None], last[None]
        span = (errors.gather(0, high) - errors.gather(0, low)).clamp_min(1e-30)
        share = ((max_error - errors.gather(0, low)) / span).clamp(0, 1)

        def between(values: torch.Tensor) -> torch.Tensor:
            return ((1 - share) * values.gather(0, low) + share * values.gather(0, high))[0]

        alphas = alphas[:, None].expand_as(betas)
        return Choice(between(alphas), between(betas.log()).exp(), between(errors), between(supports))

    def best(self, name: str, index: int = 0) -> torch.Tensor:
        """
        For the alpha number `index` of an attention module, the beta of each head that fits best.
        """
        sums = self.sums[name][index]
        if len(sums.exponents) == 1:  # measuring, not searching
            exponents = sums.exponents[0]
        elif self.options.objective == "support":
            exponents = _crossing(sums.exponents, sums.support / self.visible[name], self.options.target_support)
        else:
            exponents = _vertex(sums.exponents, sums.error)
        return torch.exp2(exponents)

    def expected(self, name: str, index: int = 0) -> dict[str, torch.Tensor]:
        """
        `error` (relative to the energy of the output; for "kl" in nats), and `support` as a share of the visible keys, of each head with its best beta for an alpha.
        """
        sums = self.sums[name][index]
        if len(sums.exponents) == 1:
            error, support = sums.error[0], sums.support[0]
        else:
            best = self.best(name, index).log2()
            error, support = (_interpolated(sums.exponents, column, best) for column in (sums.error, sums.support))
        return {
            "error": error / self.scale[name].clamp_min(1e-30),
            "support": support / self.visible[name].clamp_min(1),
        }

    def state_dict(self) -> dict:
        """Everything that the search has summed up, for `torch.save`."""
        return {
            "sums": {name: [vars(sums) for sums in several] for name, several in self.sums.items()},
            "scale": self.scale,
            "visible": self.visible,
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: dict) -> None:
        """Go on from a `state_dict`."""
        self.sums = {name: [HeadSums(**sums) for sums in several] for name, several in state["sums"].items()}
        self.scale, self.visible = state["scale"], state["visible"]
        self.generator.set_state(state["generator"])


def _no_sums(exponents: torch.Tensor) -> HeadSums:
    return HeadSums(exponents, torch.zeros_like(exponents), torch.zeros_like(exponents))


def _vertex(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Where the parabola through the lowest point and its neighbours has its minimum; columns are independent."""
    middle = y.argmin(0).clamp(1, len(y) - 2)

    def at(values: torch.Tensor, offset: int) -> torch.Tensor:
        return values.gather(0, (middle + offset)[None])[0]

    left, centre, right = (at(y, offset) for offset in (-1, 0, 1))
    curvature = left - 2 * centre + right
    offset = torch.where(curvature > 0, 0.5 * (left - right) / curvature.clamp_min(1e-300), torch.zeros_like(left))
    return at(x, 0) + offset.clamp(-1, 1) * (at(x, 1) - at(x, 0))


def _crossing(x: torch.Tensor, y: torch.Tensor, target: float) -> torch.Tensor:
    """Where falling columns `y` reach `target`, by linear interpolation; the nearest end if they do not."""
    after = (y > target).sum(0).clamp(1, len(y) - 1)

    def at(values: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return values.gather(0, index[None])[0]

    high, low = at(y, after - 1), at(y, after)
    share = ((high - target) / (high - low).clamp_min(1e-12)).clamp(0, 1)
    return at(x, after - 1) + share * (at(x, after) - at(x, after - 1))


def _interpolated(x: torch.Tensor, y: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    """Columns `y` at `place`, by the parabola through the nearest points `x`, which are evenly spaced."""
    position = ((place - x[0]) / (x[1] - x[0])).clamp(0, len(x) - 1)
    middle = position.round().long().clamp(1, len(x) - 2)
    left, centre, right = (y.gather(0, (middle + offset)[None])[0] for offset in (-1, 0, 1))
    t = position - middle
    return (centre + 0.5 * t * (right - left) + 0.5 * t * t * (left - 2 * centre + right)).clamp_min(0)
