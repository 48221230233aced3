# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The search for beta of every head, while batches stream by: sums over rows are all that it keeps."""

import math
from dataclasses import dataclass

import torch

from ..backends import RetrievalProblem
from .observation import Observer, Setting, evaluate, evaluate_dense, sampled
from .settings import LayerRetrieval


OBJECTIVES = ("output", "kl", "support")

# beta = 2 ** exponent. From the first batch a head gets five exponents around its best coarse one; those of all batches
# are summed, and a parabola through the best three gives the exponent in between.
_COARSE = tuple(range(-7, 3))
_FINE = (-1.0, -0.5, 0.0, 0.5, 1.0)
_COUNTED = 4


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


class HeadSearch(Observer):
    """
    Tries betas (and alphas) on what the heads of a model retrieve.

    Args:
        alphas (`dict[str, list[float | torch.Tensor]]`): For each attention module, the alphas to try.
        per_head (`dict[str, bool]`): Whether an attention module can have one setting per head.
        objective (`str`): One of `OBJECTIVES`.
        target_support (`float`, *optional*): For `"support"`: the share of the visible keys that is to get weight.
        layerwise (`bool`): Let the model go on with the best settings so far instead of dense attention.
        rows (`int`): How many queries of a batch to look at in each attention module.
        seed (`int`): Chooses these queries.
    """

    def __init__(
        self,
        alphas: dict[str, list[Setting]],
        per_head: dict[str, bool],
        objective: str,
        target_support: float | None,
        layerwise: bool,
        rows: int,
        seed: int,
    ) -> None:
        self.alphas, self.per_head = alphas, per_head
        self.objective, self.target_support = objective, target_support
        self.layerwise, self.rows, self.seed = layerwise, rows, seed
        self.generator = torch.Generator().manual_seed(seed)
        self.sums: dict[str, list[HeadSums]] = {}
        self.energy: dict[str, torch.Tensor] = {}  # of the dense outputs, per head: what errors are relative to
        self.visible: dict[str, torch.Tensor] = {}

    def observe(self, name: str, problem: RetrievalProblem) -> None:
        problem, visible = sampled(problem, self.rows, self.generator)
        # Outputs come from the fastest backend; weights, which only the slowest one gives, are needed of fewer rows.
        counted, counted_visible = problem, visible
        if self.objective == "output":
            counted, counted_visible = sampled(problem, max(1, self.rows // _COUNTED), self.generator)
        dense = evaluate_dense(problem, return_weights=self.objective == "kl")
        heads = problem.query.shape[1]

        def total(tensor: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:  # (batch, heads, queries) -> (heads,)
            unused = (visible == 0).expand(-1, heads, -1)
            summed = tensor.masked_fill(unused, 0).double().sum((0, 2)).cpu()
            return summed if self.per_head[name] else summed.sum(0, keepdim=True)

        def attempt(alpha: Setting, exponents: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            beta = torch.exp2(exponents).float()
            result = evaluate(counted, beta, alpha, return_weights=True, backend="reference")
            support = total((result.weights > 0).sum(-1).float(), counted_visible)
            if self.objective == "kl":
                ratio = (result.weights / dense.weights.clamp_min(1e-30)).clamp_min(1e-30).log()
                return total((result.weights * ratio).float().sum(-1), visible), support
            output = result.output if counted is problem else evaluate(problem, beta, alpha).output
            return total((output - dense.output).float().square().sum(-1), visible), support

        energy = total(dense.output.float().square().sum(-1), visible)
        seen = total(counted_visible.expand(-1, heads, -1).float(), counted_visible)
        if name not in self.sums:
            self.sums[name] = [self._fine(attempt, alpha, seen) for alpha in self.alphas[name]]
        self.energy[name] = self.energy.get(name, 0) + energy
        self.visible[name] = self.visible.get(name, 0) + seen
        for alpha, sums in zip(self.alphas[name], self.sums[name], strict=True):
            for i, exponents in enumerate(sums.exponents):
                error, support = attempt(alpha, exponents)
                sums.error[i] += error
                sums.support[i] += support

    def _fine(self, attempt, alpha: Setting, visible: torch.Tensor) -> HeadSums:
        coarse = [attempt(alpha, torch.full_like(visible, exponent)) for exponent in _COARSE]
        error, support = (torch.stack(column) for column in zip(*coarse, strict=True))
        if self.objective == "support":
            error = (support / visible - self.target_support).abs()
        centre = torch.tensor(_COARSE, dtype=torch.float64)[error.argmin(0)]
        return _no_sums(centre + torch.tensor(_FINE, dtype=torch.float64)[:, None])

    def measuring(self, alphas: dict[str, Setting], betas: dict[str, torch.Tensor]) -> "HeadSearch":
        """A search that tries nothing but these settings of each attention module."""
        measuring = HeadSearch(
            {name: [alpha] for name, alpha in alphas.items()},
            self.per_head,
            self.objective,
            self.target_support,
            False,
            self.rows,
            self.seed,
        )
        measuring.sums = {name: [_no_sums(beta.double().log2().reshape(1, -1))] for name, beta in betas.items()}
        return measuring

    def settings(self, name: str, retrieval: LayerRetrieval) -> tuple[Setting, Setting] | None:
        if not self.layerwise or name not in self.sums:
            return None
        alpha, beta = self.best(name)
        return beta.float(), alpha

    def best(self, name: str, index: int = 0) -> tuple[Setting, torch.Tensor]:
        """
        The alpha number `index` of an attention module, and the beta of each head that fits it best.
        """
        sums = self.sums[name][index]
        if self.objective == "support":
            exponents = _crossing(sums.exponents, sums.support / self.visible[name], self.target_support)
        else:
            exponents = _vertex(sums.exponents, sums.error)
        return self.alphas[name][index], torch.exp2(exponents)

    def expected(self, name: str, index: int = 0) -> dict[str, torch.Tensor]:
        """
        Relative `error`, and `support` as a share of the visible keys, of each head with its best beta for an alpha.
        """
        sums = self.sums[name][index]
        if len(sums.exponents) == 1:
            error, support = sums.error[0], sums.support[0]
        else:
            best = self.best(name, index)[1].log2()
            error, support = (_interpolated(sums.exponents, column, best) for column in (sums.error, sums.support))
        return {
            "error": error / self.energy[name].clamp_min(1e-30),
            "support": support / self.visible[name].clamp_min(1),
        }

    def state_dict(self) -> dict:
        """Everything that the search has summed up, for `torch.save`."""
        return {
            "sums": {name: [vars(sums) for sums in several] for name, several in self.sums.items()},
            "energy": self.energy,
            "visible": self.visible,
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: dict) -> None:
        """Go on from a `state_dict`."""
        self.sums = {name: [HeadSums(**sums) for sums in several] for name, several in state["sums"].items()}
        self.energy, self.visible = state["energy"], state["visible"]
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


def number_or_list(values: torch.Tensor) -> float | list[float]:
    """Settings as a configuration holds them: rounded to six digits, one number where there is one."""
    rounded = [_rounded(value) for value in values.tolist()]
    return rounded if len(rounded) > 1 else rounded[0]


def _rounded(value: float) -> float:
    return float(f"{value:.6g}") if math.isfinite(value) else value
