# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Accuracy, as a metric of evaluate."""

import datasets
import evaluate
import numpy as np


_DESCRIPTION = "The share of the predictions that equal the references."
_INPUTS = """
Args:
    predictions (`list` of `int`): Predicted labels.
    references (`list` of `int`): Right labels.
    sample_weight (`list` of `float`, *optional*): How much each of them counts.

Returns:
    `dict`: `accuracy`.

Example:

    >>> accuracy = evaluate.load("metrics/accuracy")
    >>> accuracy.compute(predictions=[0, 1, 2, 1], references=[0, 1, 1, 1])
    {'accuracy': 0.75}
"""


class Accuracy(evaluate.Metric):
    """Share of right predictions."""

    def _info(self):
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation="",
            inputs_description=_INPUTS,
            features=datasets.Features({name: datasets.Value("int64") for name in ("predictions", "references")}),
        )

    def _compute(self, predictions, references, sample_weight=None):
        right = np.equal(predictions, references)
        return {"accuracy": float(np.average(right, weights=sample_weight))}
