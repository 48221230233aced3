# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import zlib

import numpy as np
import torch

from hf_sparse_hopfield import entmax
from hf_sparse_hopfield.diagnostics.explorer.rows import COARSE_UNITS, UNITS, Rows, most_per_row


def unpacked(packed: bytes, rows: int) -> tuple[np.ndarray, ...]:
    """As `unpacked` in explorer.js."""
    numbers, value, shift = [], 0, 0
    for byte in zlib.decompress(packed):
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            numbers.append(value)
            value = shift = 0
    kept, unlisted, rest = np.array(numbers[: 3 * rows]).reshape(3, rows)
    steps, units = np.array(numbers[3 * rows :]).reshape(2, -1)
    parts = np.split(steps, np.cumsum(kept)[:-1])
    return kept, unlisted, rest, np.concatenate([part.cumsum() for part in parts]), units


def weights(alpha: float = 1.5) -> torch.Tensor:
    made = entmax(4 * torch.randn(3, 20, 300), alpha)
    made[0, 3] = 0  # padding
    return made


def test_rows_hold_the_support_and_its_weights():
    dense = weights()
    kept, unlisted, rest, keys, units = unpacked(Rows.of(dense, list_tiny=True).packed(), 60)
    assert not unlisted.any() and not rest.any()
    back = np.zeros((60, 300), dtype=int)
    back[np.repeat(np.arange(60), kept), keys] = units + 1
    support = dense.flatten(0, 1).numpy() > 0
    assert (support == (back > 0)).all()
    assert np.abs((back - 1)[support] / UNITS - dense.flatten(0, 1).numpy()[support]).max() <= 0.5001 / UNITS


def test_what_is_not_listed_is_summed():
    dense = weights(1.0)
    rows = Rows.of(dense, list_tiny=False)
    assert (rows.units > 0).all() and rows.unlisted.sum() > 0
    few = rows.limited(4)
    total = few.rest + np.bincount(np.repeat(np.arange(60), few.kept), few.units, 60)
    full = dense.flatten(0, 1).sum(-1).numpy() > 0
    assert np.abs(total[full] - UNITS).max() < 150  # 300 roundings
    assert few.kept.max() == 4 and (few.kept + few.unlisted == (dense.flatten(0, 1) > 0).sum(-1).numpy()).all()
    largest = dense.flatten(0, 1).topk(4).values.sum(-1)
    assert np.abs((total - few.rest)[full] / UNITS - largest.numpy()[full]).max() < 4 / UNITS
    assert (few.coarse().units == np.rint(few.units.astype(float) * COARSE_UNITS / UNITS)).all()


def test_the_budget_is_used_and_kept():
    rows = [Rows.of(weights(), list_tiny=True), Rows.of(weights(1.2), list_tiny=True)]
    count = sum(len(one.keys) for one in rows)
    assert most_per_row(rows, count) >= max(one.kept.max() for one in rows)
    for budget in (count // 2, count // 5):
        most = most_per_row(rows, budget)
        assert sum(len(one.limited(most).keys) for one in rows) <= budget
        assert sum(len(one.limited(most + 1).keys) for one in rows) > budget
    assert most_per_row(rows, 0) == 1
