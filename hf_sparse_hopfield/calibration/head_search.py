# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The search for beta (and alpha) of every head. It sees each batch once and keeps nothing but sums over rows."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from ..backends import RetrievalProblem, RetrievalResult
from ..backends.lengths import REFERENCE_KEYS
from ..observation import HeadSettings, Observer
from ..observed_problems import Setting, evaluate, evaluate_dense, sampled
from ..retrieval_parameters import RetrievalParameters
from .recipe import CalibrationOptions


# beta = 2 ** exponent. The first batch gives each head five exponents around its best coarse one. Errors with these are
# summed over all batches, and a parabola through the best three gives the exponent in between. A small support may need a
# larger beta than any small error does.
_COARSE = tuple(range(-7, 3))
_COARSE_FOR_SUPPORT = tuple(range(-7, 9))
_FINE = (-1.0, -0.5, 0.0, 0.5, 1.0)
_COUNTED = 4

# Rows are summed by the octave of their number of visible keys. The best beta of long rows may be far from that of short ones,
# so a search of length_power tries more exponents around the coarse one.
_OCTAVES = 24
_FINE_FOR_LENGTHS = tuple(step / 2 for step in range(-4, 5))
_POWERS = tuple(step / 40 for step in range(-28, 29))
_STEP = 1 / 16  # of the exponents that are compared for each power
_LONGEST_RATIO = 4.0  # with rows that differ by less, length_power stays 0: they say nothing about it


@dataclass
class HeadSums:
    """
    The sums for one attention module and one alpha.

    Args:
        exponents (`torch.Tensor` of shape `(betas, heads)`): log2 of the betas to try.
        power (`torch.Tensor` of shape `(heads,)`): The length_power that goes with them.
        error (`torch.Tensor` of shape `(betas, heads, octaves)`): Sum of the objective over rows.
        support (`torch.Tensor` of shape `(betas, heads, octaves)`): Sum of the support sizes over rows.
    """

    exponents: torch.Tensor
    power: torch.Tensor
    error: torch.Tensor
    support: torch.Tensor


class Choice(NamedTuple):
    """The settings chosen for the heads of an attention module, and the error and support that come with them."""

    alpha: torch.Tensor
    beta: torch.Tensor
    length_power: torch.Tensor
    error: torch.Tensor
    support: torch.Tensor


class _Trials:
    """
    Some rows of one retrieval, on which to try settings. All results are sums over these rows, by head and octave.

    Args:
        problem ([`RetrievalProblem`]): What an attention module retrieves in the dense model.
        options ([`CalibrationOptions`]): Objective and number of rows.
        per_head (`bool`): Whether the module can have one setting per head; if not, heads are summed.
        generator (`torch.Generator`): Chooses the rows.
    """

    def __init__(
        self, problem: RetrievalProblem, options: CalibrationOptions, per_head: bool, generator: torch.Generator
    ) -> None:
        self.objective, self.per_head = options.objective, per_head
        self.problem, self.visible = sampled(problem, options.rows, generator)
        # Outputs come from the fastest backend. Support needs weights, which only the slowest backend returns, so it is
        # counted on fewer rows.
        self.counted, self.counted_visible = self.problem, self.visible
        if self.objective == "output":
            self.counted, self.counted_visible = sampled(self.problem, max(1, options.rows // _COUNTED), generator)
        self.dense = evaluate_dense(self.problem, return_weights=self.objective == "kl")

    def scale(self) -> torch.Tensor:
        """Return what errors are relative to: the energy of the dense outputs; for "kl" the number of rows."""
        energy = self.dense.output.float().square().sum(-1)
        return self._total(torch.ones_like(energy) if self.objective == "kl" else energy, self.visible)

    def visible_keys(self) -> torch.Tensor:
        """Return the number of visible keys, in the rows on which support is counted."""
        heads = self.problem.query.shape[1]
        return self._total(self.counted_visible.expand(-1, heads, -1).float(), self.counted_visible)

    def measure(
        self, alpha: Setting, exponents: torch.Tensor, power: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """
        Return the error and the support of settings.

        Args:
            alpha (`float` or `torch.Tensor` of shape `(heads,)`): Member of the entmax family.
            exponents (`torch.Tensor` of shape `(heads,)`): log2 of beta.
            power (`torch.Tensor` of shape `(heads,)`): length_power.
        """
        beta = torch.exp2(exponents).float()
        length: Setting = power.float() if power.any() else 0.0
        result = evaluate(self.counted, beta, alpha, return_weights=True, backend="reference", length_power=length)
        weights = _weights(result)
        support = self._total((weights > 0).sum(-1).float(), self.counted_visible)
        if self.objective == "kl":
            ratio = (weights / _weights(self.dense).clamp_min(1e-30)).clamp_min(1e-30).log()
            return self._total((weights * ratio).float().sum(-1), self.visible), support
        output = result.output
        if self.counted is not self.problem:
            output = evaluate(self.problem, beta, alpha, length_power=length).output
        return self._total((output - self.dense.output).float().square().sum(-1), self.visible), support

    def _total(self, tensor: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
        """Sum over batch and queries, without padding: `(batch, heads, queries)` to `(heads, octaves)`."""
        visible = visible.expand(tensor.shape[0], tensor.shape[1], -1)
        octave = visible.clamp_min(1).double().log2().floor().long().clamp_max(_OCTAVES - 1)
        kept = tensor.masked_fill(visible == 0, 0).double()
        summed = kept.new_zeros(*kept.shape[:2], _OCTAVES).scatter_add_(2, octave, kept).sum(0).cpu()
        return summed if self.per_head else summed.sum(0, keepdim=True)


def _weights(result: RetrievalResult) -> torch.Tensor:
    assert result.weights is not None  # asked for with return_weights
    return result.weights


class HeadSearch(Observer):
    """
    Tries betas (and alphas) on what the heads of a model retrieve.

    Args:
        alphas (`dict[str, list[float | torch.Tensor]]`):
            The alphas to try for each attention module, rising. If there are several, each head gets one between them.
        per_head (`dict[str, bool]`): Whether an attention module can have one setting per head.
        options ([`CalibrationOptions`]): How to search.
    """

    def __init__(
        self, alphas: dict[str, list[Setting]], per_head: dict[str, bool], options: CalibrationOptions
    ) -> None:
        self.alphas, self.per_head, self.options = alphas, per_head, options
        self.generator = torch.Generator().manual_seed(options.seed)
        self.sums: dict[str, list[HeadSums]] = {}
        self.scale: dict[str, torch.Tensor] = {}
        self.visible: dict[str, torch.Tensor] = {}
        self.longest = 0

    @property
    def reached(self) -> list[str]:
        """The attention modules that have retrieved something."""
        return [name for name in self.alphas if name in self.sums]

    def observe(self, name: str, problem: RetrievalProblem) -> None:
        trials = _Trials(problem, self.options, self.per_head[name], self.generator)
        scale, visible = trials.scale(), trials.visible_keys()
        self.longest = max(self.longest, int(trials.visible.max()))
        if name not in self.sums:
            self.sums[name] = [self._around_best(trials, alpha, visible) for alpha in self.alphas[name]]
        self.scale[name] = self.scale.get(name, 0) + scale
        self.visible[name] = self.visible.get(name, 0) + visible
        for alpha, sums in zip(self.alphas[name], self.sums[name], strict=True):
            for i, exponents in enumerate(sums.exponents):
                error, support = trials.measure(alpha, exponents, sums.power)
                sums.error[i] += error
                sums.support[i] += support

    def _around_best(self, trials: _Trials, alpha: Setting, visible: torch.Tensor) -> HeadSums:
        """Start sums for the exponents around each head's best coarse one."""
        target = self.options.target_support
        exponents = _COARSE if target is None else _COARSE_FOR_SUPPORT
        none = torch.zeros(len(visible), dtype=torch.float64)
        coarse = [trials.measure(alpha, torch.full_like(none, exponent), none) for exponent in exponents]
        error, support = (torch.stack(column).sum(-1) for column in zip(*coarse, strict=True))
        if target is not None:
            error = (support / visible.sum(-1) - target).abs()
        centre = torch.tensor(exponents, dtype=torch.float64)[error.argmin(0)]
        fine = _FINE_FOR_LENGTHS if self.options.searches_lengths else _FINE
        return _no_sums(centre + torch.tensor(fine, dtype=torch.float64)[:, None], none)

    def measuring(self, settings: dict[str, HeadSettings]) -> "HeadSearch":
        """Return a search that tries only these settings of each attention module."""
        alone = {name: [each.alpha] for name, each in settings.items()}
        measuring = HeadSearch(alone, self.per_head, dataclasses.replace(self.options, layerwise=False))
        for name, each in settings.items():
            exponents = torch.as_tensor(each.beta).double().log2().reshape(1, -1)
            power = torch.as_tensor(each.length_power, dtype=torch.float64).expand(exponents.shape[1])
            measuring.sums[name] = [_no_sums(exponents, power)]
        return measuring

    def settings(self, name: str, parameters: RetrievalParameters) -> HeadSettings | None:
        if not self.options.layerwise or name not in self.sums:
            return None
        chosen = self.choose(name)
        alpha = self.alphas[name][0] if len(self.alphas[name]) == 1 else chosen.alpha.float()
        return HeadSettings(chosen.beta.float(), alpha, chosen.length_power.float())

    def choose(self, name: str, max_error: float | None = None) -> Choice:
        """
        Return the best settings for the heads of an attention module, after the batches so far.

        Args:
            name (`str`): Path of the attention module.
            max_error (`float`, *optional*):
                If several alphas were tried, the largest one with at most this error is chosen. By default the `max_error`
                of the options.
        """
        if len(self.alphas[name]) > 1:
            return self._largest_alphas(name, self.options.max_error if max_error is None else max_error)
        alpha = torch.as_tensor(self.alphas[name][0], dtype=torch.float64).reshape(-1)
        return Choice(alpha, *self.best(name), **self.expected(name))

    def choose_all(self, max_error: float | None = None) -> dict[str, Choice]:
        """
        Return the best settings for every attention module that the batches reached.

        Args:
            max_error (`float`, *optional*): As for [`choose`].
        """
        return {name: self.choose(name, max_error) for name in self.reached}

    def _largest_alphas(self, name: str, max_error: float) -> Choice:
        """Give each head the largest alpha whose error is allowed, interpolated between those tried and 1, the dense head."""
        count = len(self.alphas[name])
        betas, powers = (
            torch.stack(column) for column in zip(*(self.best(name, index) for index in range(count)), strict=True)
        )
        expected = [self.expected(name, index) for index in range(count)]
        errors, supports = (torch.stack([each[key] for each in expected]) for key in ("error", "support"))
        ones, zeros = torch.ones_like(betas[:1]), torch.zeros_like(betas[:1])
        alphas = torch.tensor([1.0, *self.alphas[name]], dtype=torch.float64)
        pairs = ((ones, betas), (zeros, powers), (zeros, errors), (ones, supports))
        betas, powers, errors, supports = (torch.cat(pair) for pair in pairs)
        errors = errors.cummax(0).values
        # index of the first alpha that is too large, or of the last one
        last = (errors <= max_error).sum(0).clamp_max(count)
        low, high = (last - 1).clamp_min(0)[None], last[None]
        span = (errors.gather(0, high) - errors.gather(0, low)).clamp_min(1e-30)
        share = ((max_error - errors.gather(0, low)) / span).clamp(0, 1)

        def between(values: torch.Tensor) -> torch.Tensor:
            return ((1 - share) * values.gather(0, low) + share * values.gather(0, high))[0]

        alphas = alphas[:, None].expand_as(betas)
        betas = between(betas.log()).exp()
        return Choice(between(alphas), betas, between(powers), between(errors), between(supports))

    def best(self, name: str, index: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the best beta and length_power of each head, for the alpha with number `index` of an attention module."""
        sums = self.sums[name][index]
        power = sums.power
        if len(sums.exponents) == 1:  # measuring, not searching
            exponents = sums.exponents[0]
        elif self.options.target_support is not None:
            share = sums.support.sum(-1) / self.visible[name].sum(-1)
            exponents = _crossing(sums.exponents, share, self.options.target_support)
        elif self.lengths_vary(name):
            exponents, power = _tilted(sums.exponents, sums.error)
        else:
            exponents = _vertex(sums.exponents, sums.error.sum(-1))
        return torch.exp2(exponents), power

    def lengths_vary(self, name: str) -> bool:
        """Return whether rows of clearly different lengths were seen, so that they say something about length_power."""
        seen = self.visible[name].sum(0).nonzero().flatten()
        return self.options.searches_lengths and 2.0 ** float(seen[-1] - seen[0]) >= _LONGEST_RATIO

    def expected(self, name: str, index: int = 0) -> dict[str, torch.Tensor]:
        """
        Return what each head reaches with its best beta for an alpha: `error`, relative to the energy of the output (for
        "kl" in nats), and `support`, as a share of the visible keys.
        """
        sums = self.sums[name][index]
        if len(sums.exponents) == 1:
            error, support = sums.error[0].sum(-1), sums.support[0].sum(-1)
        else:
            beta, power = self.best(name, index)
            place = beta.log2()[:, None] + power[:, None] * _LENGTHS
            exponents = sums.exponents[..., None].expand_as(sums.error)
            error, support = (
                _interpolated(exponents, column, place[None])[0].sum(-1) for column in (sums.error, sums.support)
            )
        return {
            "error": error / self.scale[name].sum(-1).clamp_min(1e-30),
            "support": support / self.visible[name].sum(-1).clamp_min(1),
        }

    def state_dict(self) -> dict[str, Any]:
        """Return all sums so far, for `torch.save`."""
        return {
            "sums": {name: [vars(sums) for sums in several] for name, several in self.sums.items()},
            "scale": self.scale,
            "visible": self.visible,
            "longest": self.longest,
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a `state_dict`."""
        self.sums = {name: [HeadSums(**sums) for sums in several] for name, several in state["sums"].items()}
        self.scale, self.visible, self.longest = state["scale"], state["visible"], state["longest"]
        self.generator.set_state(state["generator"])


# log2 of the length of the rows of an octave, relative to the one at which beta is what it says.
_LENGTHS = torch.arange(_OCTAVES, dtype=torch.float64) + 0.5 - math.log2(REFERENCE_KEYS)


def _no_sums(exponents: torch.Tensor, power: torch.Tensor) -> HeadSums:
    sums = [torch.zeros(*exponents.shape, _OCTAVES, dtype=torch.float64) for _ in range(2)]
    return HeadSums(exponents, power, *sums)


def _tilted(exponents: torch.Tensor, error: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """
    Return the exponent and the length_power of each head with the smallest sum of errors.

    Args:
        exponents (`torch.Tensor` of shape `(betas, heads)`): Exponents that were tried, evenly spaced.
        error (`torch.Tensor` of shape `(betas, heads, octaves)`): Their errors.
    """
    seen = error.sum((0, 1)) > 0
    powers = torch.tensor(_POWERS, dtype=torch.float64)
    offsets = torch.arange(0, float(exponents[-1, 0] - exponents[0, 0]) + _STEP, _STEP, dtype=torch.float64)
    middle = _LENGTHS[
        seen
    ].mean()  # about which rows tilt: the length at which beta is what it says may be far from theirs
    tilts = powers[:, None, None, None] * (_LENGTHS[seen] - middle)
    places = exponents[0][:, None] + offsets[:, None, None] + tilts  # (powers, offsets, heads, octaves)
    columns = error[..., seen]
    spread = exponents[..., None].expand_as(columns)
    total = _interpolated(spread, columns, places.flatten(0, 1)).sum(-1).view(len(powers), len(offsets), -1)
    best = total.flatten(0, 1).argmin(0)
    heads = torch.arange(len(best))
    along_offsets = total[best // len(offsets), :, heads].T
    along_powers = total[:, best % len(offsets), heads]
    power = _vertex(powers[:, None].expand_as(along_powers), along_powers)
    return _vertex(exponents[0] + offsets[:, None], along_offsets) - power * middle, power


def _vertex(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return where the parabola through the lowest point and its neighbours has its minimum, for each column."""
    middle = y.argmin(0).clamp(1, len(y) - 2)

    def at(values: torch.Tensor, offset: int) -> torch.Tensor:
        return values.gather(0, (middle + offset)[None])[0]

    left, centre, right = (at(y, offset) for offset in (-1, 0, 1))
    curvature = left - 2 * centre + right
    offset = torch.where(curvature > 0, 0.5 * (left - right) / curvature.clamp_min(1e-300), torch.zeros_like(left))
    return at(x, 0) + offset.clamp(-1, 1) * (at(x, 1) - at(x, 0))


def _crossing(x: torch.Tensor, y: torch.Tensor, target: float) -> torch.Tensor:
    """Return where falling columns `y` reach `target`, by linear interpolation, or the nearest end if they do not."""
    after = (y > target).sum(0).clamp(1, len(y) - 1)

    def at(values: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return values.gather(0, index[None])[0]

    high, low = at(y, after - 1), at(y, after)
    share = ((high - target) / (high - low).clamp_min(1e-12)).clamp(0, 1)
    return at(x, after - 1) + share * (at(x, after) - at(x, after - 1))


def _interpolated(x: torch.Tensor, y: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """
    Return columns `y` at some places, by the parabola through the nearest of the evenly spaced points `x`.

    Args:
        x, y (`torch.Tensor` of shape `(points, ...)`): The points of each column.
        places (`torch.Tensor` of shape `(n, ...)`): Places in each column.
    """
    position = ((places - x[0]) / (x[1] - x[0])).clamp(0, len(x) - 1)
    middle = position.round().long().clamp(1, len(x) - 2)
    left, centre, right = (y.gather(0, middle + offset) for offset in (-1, 0, 1))
    t = position - middle
    return (centre + 0.5 * t * (right - left) + 0.5 * t * t * (left - 2 * centre + right)).clamp_min(0)
