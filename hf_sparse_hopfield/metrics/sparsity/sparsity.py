# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""How sparsely attention uses its keys, as a measurement of evaluate."""

import datasets
import evaluate
import numpy as np


_DESCRIPTION = """How many of the keys that a query sees get weight in attention. With softmax all of them do; with sparsemax and entmax, all
but a few have a weight of exactly zero."""
_INPUTS = """
Args:
    support (`list` of `float`): Number of keys with weight: of each query, or the mean of each head.
    keys (`list` of `float`): Number of keys that the same query or head sees.
    entropy (`list` of `float`): Entropy of its weights in nats.

Returns:
    `dict`: `share_of_keys`, all support over all keys; `mean_support`; `mean_keys`; `mean_entropy`.

Example:

    >>> sparsity = evaluate.load("metrics/sparsity")
    >>> sparsity.compute(support=[2, 4], keys=[10, 20], entropy=[0.5, 1.0])
    {'share_of_keys': 0.2, 'mean_support': 3.0, 'mean_keys': 15.0, 'mean_entropy': 0.75}
"""


class Sparsity(evaluate.Measurement):
    """Support, share of the visible keys and entropy of attention weights."""

    def _info(self):
        return evaluate.MeasurementInfo(
            description=_DESCRIPTION,
            citation="",
            inputs_description=_INPUTS,
            features=datasets.Features({name: datasets.Value("float64") for name in ("support", "keys", "entropy")}),
        )

    def _compute(self, support, keys, entropy):
        support, keys = np.asarray(support), np.asarray(keys)
        if (support > keys).any():
            row = int(np.argmax(support > keys))
            raise ValueError(f"row {row} has more support ({support[row]:g}) than visible keys ({keys[row]:g}).")
        if not keys.sum():
            raise ValueError("no query sees a key: there is nothing to measure.")
        return {
            "share_of_keys": float(support.sum() / keys.sum()),
            "mean_support": float(support.mean()),
            "mean_keys": float(keys.mean()),
            "mean_entropy": float(np.mean(entropy)),
        }
