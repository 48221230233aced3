# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""A limit as a constraint: the weight of a penalty that rises while the limit is exceeded, and falls while there is room."""

import math
from collections.abc import Mapping

import torch
from torch import nn

from ..backends import RetrievalProblem
from ..observation import OwnSettings, own_settings
from ..observed_problems import evaluate_weights, sampled
from ..retrieval_parameters import RetrievalParameters


_START = 0.1  # weight of the penalty
_RATE = 0.2  # how fast its logarithm follows an excess of 100 %
_FASTEST = 0.1  # and at most in a step
_MEMORY = 0.65  # share of the old value in the running mean of a support


class SupportMeter(OwnSettings):
    """
    Counts the keys with weight on a few rows of every retrieval, while the model continues with its own settings.

    Args:
        rows (`int`): Rows of a batch to look at in each layer.
        seed (`int`): Chooses them.
    """

    def __init__(self, rows: int, seed: int) -> None:
        self.rows, self.generator = rows, torch.Generator().manual_seed(seed)
        self.parameters: dict[str, RetrievalParameters] = {}
        self.shares: dict[str, torch.Tensor] = {}

    def observe(self, name: str, problem: RetrievalProblem) -> None:
        problem, visible = sampled(problem, self.rows, self.generator)
        weights = evaluate_weights(problem, *own_settings(self.parameters[name]))
        seen = visible.expand(-1, weights.shape[1], -1)
        used = (weights > 0).sum(-1).masked_fill(seen == 0, 0)
        self.shares[name] = used.sum((0, 2)).float() / seen.sum((0, 2)).clamp_min(1)


class SupportConstraint(nn.Module):
    """
    Keeps the mean share of keys with weight below a limit, or makes it as small as a limit of another quantity allows.

    Support has no gradient: it jumps. What is known is that a larger beta gives a smaller support, about in proportion. So the
    penalty of a head has the value of its support, and minus that as its gradient in log beta. Its weight follows the excess
    over the limit.

    Args:
        modules (`dict[str, RetrievalParameters]`): The learned settings of each layer.
        max_support (`float`, *optional*): The largest mean share of the visible keys with weight.
        budget (`float`, *optional*): Instead, the largest divergence; the support is made as small as it allows.
    """

    log_weight: torch.Tensor

    def __init__(
        self, modules: Mapping[str, RetrievalParameters], max_support: float | None = None, budget: float | None = None
    ) -> None:
        super().__init__()
        self.max_support, self.budget = max_support, budget
        self.names = list(modules)
        self.register_buffer("log_weight", torch.tensor(math.log(_START), dtype=torch.float64))
        for number, module in enumerate(modules.values()):
            self.register_buffer(f"support_{number}", torch.full((module.num_heads,), torch.nan))

    @property
    def is_active(self) -> bool:
        """Whether there is anything to keep."""
        return self.max_support is not None or self.budget is not None

    def support(self) -> float:
        """The running mean over all heads of the share of keys with weight; NaN before the first measurement."""
        return float(torch.cat([self._support(name) for name in self.names]).mean())

    def _support(self, name: str) -> torch.Tensor:
        return getattr(self, f"support_{self.names.index(name)}")

    @torch.no_grad()
    def note(self, shares: dict[str, torch.Tensor]) -> None:
        """Take new measurements into the running means."""
        for name, share in shares.items():
            known = self._support(name)
            share = share.to(known.device)
            known.copy_(torch.where(known.isnan(), share, _MEMORY * known + (1 - _MEMORY) * share))

    @torch.no_grad()
    def adjust(self, divergence: float) -> None:
        """Let the weight of the penalty follow the excess over the limit, once per step. Without a limit, nothing happens."""
        if self.max_support is not None:
            excess = self.support() / self.max_support - 1
        elif self.budget is None:
            return
        else:
            excess = 1 - divergence / self.budget  # room for a sparser model
        if math.isfinite(excess):
            self.log_weight += max(-_FASTEST, min(_FASTEST, _RATE * excess))

    def penalty(self, modules: Mapping[str, RetrievalParameters]) -> torch.Tensor:
        """The weighted mean support, with a gradient in log beta."""
        parts = []
        for name, module in modules.items():
            assert module.log_beta is not None
            log_beta = module.log_beta.float()
            parts.append(self._support(name) * (log_beta.detach() - log_beta).exp().to(self.log_weight.device))
        return self.log_weight.exp().float() * torch.nan_to_num(torch.cat(parts)).mean()
