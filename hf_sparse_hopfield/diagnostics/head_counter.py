# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`HeadCounter`: how the heads of a model use their keys, summed over rows of weights."""

import torch


# The shares from which a head is dead. A row that sees one key has no choice and does not count.
DEAD_FIRST = 0.99  # of its weight, on the first key
DEAD_UNIFORM = 0.999  # of the largest entropy that its rows can have
DEAD_SINK = 0.99  # of its weight, on a learned sink, which has no value


class HeadCounter:
    """Sums over rows, head by head: memory does not grow with the number of batches."""

    def __init__(self) -> None:
        self.sums: dict[str, dict[str, torch.Tensor]] = {}

    def add(self, name: str, weights: torch.Tensor, visible: torch.Tensor) -> None:
        """
        Count some rows.

        Args:
            name (`str`): The layer.
            weights (`torch.Tensor` of shape `(batch, heads, queries, keys)`): Its weights.
            visible (`torch.Tensor` of shape `(batch, 1 or heads, queries)`):
                Number of keys that each query may attend to; 0 for a row that does not count.
        """
        visible = visible.expand(-1, weights.shape[1], -1)
        free = visible > 1
        counted = {
            "rows": (visible > 0).double(),
            "support": (weights > 0).sum(-1),
            "keys": visible,
            "entropy": torch.special.entr(weights).sum(-1),
            "most": visible.clamp_min(1).log(),
            "sink": weights[..., 0],
            "free": free.double(),
            "free_sink": weights[..., 0] * free,
            "free_total": weights.sum(-1) * free,
        }
        sums = self.sums.setdefault(name, {})
        for key, value in counted.items():
            total = value.masked_fill(visible == 0, 0).double().sum((0, 2)).cpu()
            sums[key] = sums[key] + total if key in sums else total

    def mean(self, name: str, quantity: str) -> list[float]:
        """Mean over the rows of a layer, one entry per head."""
        return (self.sums[name][quantity] / self.sums[name]["rows"].clamp_min(1)).tolist()

    def share(self, name: str) -> torch.Tensor:
        """Share of the visible keys that get weight, one entry per head."""
        return self.sums[name]["support"] / self.sums[name]["keys"].clamp_min(1)

    def dead(self, name: str) -> list[str | None]:
        """
        Why each head of a layer is dead: it gives all its weight to the `"first"` key, to a learned `"sink"`, or the same weight
        to every key (`"uniform"`). A constant could replace such a head. `None` for a head that is alive.
        """
        sums = self.sums[name]
        reasons = {
            "first": sums["free_sink"] >= DEAD_FIRST * sums["free"],
            "sink": sums["free_total"] <= (1 - DEAD_SINK) * sums["free"],
            "uniform": sums["entropy"] >= DEAD_UNIFORM * sums["most"],
        }
        found = [[reason for reason, holds in reasons.items() if holds[head]] for head in range(len(sums["rows"]))]
        return [names[0] if names and sums["free"][head] > 0 else None for head, names in enumerate(found)]
