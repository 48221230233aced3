# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Mean absolute error, as a metric of evaluate."""

import datasets
import evaluate
import numpy as np


_DESCRIPTION = "The mean of the absolute differences between predictions and references."
_INPUTS = """
Args:
    predictions (`list` of `float`, or of `list` of `float`): Predicted numbers. Rows of several numbers are faster.
    references (`list` of `float`, or of `list` of `float`): The right numbers, in the same form.

Returns:
    `dict`: `mae`.

Example:

    >>> mae = evaluate.load("metrics/mae")
    >>> mae.compute(predictions=[2.5, 0.0, 2.0], references=[3.0, 0.0, 3.0])
    {'mae': 0.5}
"""


class Mae(evaluate.Metric):
    """Mean absolute error."""

    def _info(self):
        number = datasets.Value("float64")
        names = ("predictions", "references")
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation="",
            inputs_description=_INPUTS,
            features=[datasets.Features(dict.fromkeys(names, form)) for form in (datasets.Sequence(number), number)],
        )

    def _compute(self, predictions, references):
        differences = np.asarray(predictions) - np.asarray(references)
        return {"mae": float(np.abs(differences).mean())}
