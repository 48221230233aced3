# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The weights of the heads of a layer in few bytes: of each row, the keys that have weight."""

import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import torch


# Weights are whole numbers of 1/10000: the page shows them as a percentage with two digits. A page with many weights has those of
# 1/1000, which need half the space.
UNITS = 10_000
COARSE_UNITS = 1_000


@dataclass
class Rows:
    """
    The rows of weights of one layer, those of the first head first.

    Args:
        kept (`np.ndarray` of shape `(rows,)`): Number of keys that are listed for each row.
        unlisted (`np.ndarray` of shape `(rows,)`): Number of other keys that have weight.
        rest (`np.ndarray` of shape `(rows,)`): Their weights together, in units.
        keys (`np.ndarray` of shape `(kept.sum(),)`): The listed keys, ascending in each row.
        units (`np.ndarray` of shape `(kept.sum(),)`): Their weights, in units.
    """

    kept: np.ndarray
    unlisted: np.ndarray
    rest: np.ndarray
    keys: np.ndarray
    units: np.ndarray

    @classmethod
    def of(cls, weights: torch.Tensor, list_tiny: bool) -> "Rows":
        """
        The rows of a layer.

        Args:
            weights (`torch.Tensor` of shape `(heads, queries, keys)`): The weights.
            list_tiny (`bool`): Whether to list keys whose weight rounds to zero.
        """
        flat = weights.float().cpu().flatten(0, 1).numpy()
        positive = flat > 0
        rounded = np.rint(flat * UNITS).astype(np.uint16)
        listed = positive if list_tiny else rounded > 0
        rows, keys = np.nonzero(listed)
        rest = np.where(listed, 0, flat).sum(-1)
        return cls(
            kept=listed.sum(-1).astype(np.uint16),
            unlisted=(positive & ~listed).sum(-1).astype(np.uint16),
            rest=np.rint(rest * UNITS).astype(np.uint16),
            keys=keys.astype(np.uint16),
            units=rounded[rows, keys],
        )

    def limited(self, most: int) -> "Rows":
        """List at most so many keys of each row: those with the largest weights."""
        if not len(self.kept) or self.kept.max() <= most:
            return self
        table = np.arange(self.kept.max()) < self.kept[:, None]
        units = np.full(table.shape, -1, dtype=np.int32)
        units[table] = self.units
        largest = np.argpartition(units, -most, axis=1)[:, -most:]
        chosen = np.zeros(table.shape, dtype=bool)
        np.put_along_axis(chosen, largest, True, axis=1)
        stays = chosen[table]
        row = np.repeat(np.arange(len(self.kept)), self.kept)
        dropped = np.bincount(row[~stays], self.units[~stays], len(self.kept))
        kept = np.minimum(self.kept, most)
        return Rows(
            kept=kept,
            unlisted=self.unlisted + (self.kept - kept),
            rest=(self.rest + dropped).astype(np.uint16),
            keys=self.keys[stays],
            units=self.units[stays],
        )

    def coarse(self) -> "Rows":
        """The same with weights in coarse units."""
        rest, units = (
            np.rint(numbers / (UNITS // COARSE_UNITS)).astype(np.uint16) for numbers in (self.rest, self.units)
        )
        return replace(self, rest=rest, units=units)

    def packed(self) -> bytes:
        """All of it as compressed numbers of one to three bytes, which `explorer.js` reads. Keys are differences."""
        steps = np.diff(self.keys.astype(np.int32), prepend=0)
        first = (np.cumsum(self.kept, dtype=np.int64) - self.kept)[self.kept > 0]
        steps[first] = self.keys[first]
        return zlib.compress(_numbers(np.concatenate([self.kept, self.unlisted, self.rest, steps, self.units])), 9)


def most_per_row(layers: Iterable[Rows], budget: int) -> int:
    """
    The largest number of keys to list for a row with which all layers stay within a budget.

    Args:
        layers (iterable of [`Rows`]): The layers.
        budget (`int`): The number of listed keys, of all rows together.
    """
    counts = sum((np.bincount(rows.kept, minlength=2**16) for rows in layers), np.zeros(2**16, dtype=np.int64))
    # With one more key listed, each row that has more than so many keys grows by one.
    longer = np.cumsum(counts[::-1])[::-1][1:]
    return max(1, int(np.searchsorted(np.cumsum(longer), budget, side="right")))


def _numbers(values: np.ndarray) -> bytes:
    """Numbers below 2^21, seven bits in a byte, the lowest first; the highest bit says that another byte follows."""
    values = values.astype(np.uint32)
    size = 1 + (values >= 1 << 7) + (values >= 1 << 14)
    parts = np.stack([values, values >> 7, values >> 14], 1) & 127
    position = np.arange(3)
    parts |= np.where(position < size[:, None] - 1, 128, 0).astype(np.uint32)
    return parts[position < size[:, None]].astype(np.uint8).tobytes()
