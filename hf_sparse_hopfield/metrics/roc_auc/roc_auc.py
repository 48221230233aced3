# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Area under the ROC curve, as a metric of evaluate."""

import datasets
import evaluate
import numpy as np


_DESCRIPTION = """The area under the ROC curve: the probability that a positive sample, chosen at random, has a higher score than a negative
one. Equal scores count one half."""
_INPUTS = """
Args:
    prediction_scores (`list` of `float`): Scores that grow with the probability of the label 1.
    references (`list` of `int`): Right labels, 0 or 1. Both must occur.

Returns:
    `dict`: `roc_auc`.

Example:

    >>> roc_auc = evaluate.load("metrics/roc_auc")
    >>> roc_auc.compute(prediction_scores=[0.5, 2.0, -1.0, 0.5], references=[1, 1, 0, 0])
    {'roc_auc': 0.875}
"""


class RocAuc(evaluate.Metric):
    """Area under the ROC curve of two classes."""

    def _info(self):
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation="",
            inputs_description=_INPUTS,
            features=datasets.Features(
                {"prediction_scores": datasets.Value("float64"), "references": datasets.Value("int64")}
            ),
        )

    def _compute(self, prediction_scores, references):
        if set(references) != {0, 1}:
            raise ValueError(f"references must be 0 or 1, with both among them, got {sorted(set(references))}.")
        positive = np.asarray(references) == 1
        _, place, count = np.unique(prediction_scores, return_inverse=True, return_counts=True)
        ranks = (np.cumsum(count) - (count - 1) / 2)[place]  # equal scores share the mean of their ranks
        positives, negatives = positive.sum(), (~positive).sum()
        return {"roc_auc": float((ranks[positive].sum() / positives - (positives + 1) / 2) / negatives)}
