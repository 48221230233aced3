# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""F1, as a metric of evaluate."""

import datasets
import evaluate
import numpy as np


_DESCRIPTION = """The harmonic mean of precision and recall, 2 TP / (2 TP + FP + FN). A label that neither occurs nor is predicted has
an F1 of 0."""
_INPUTS = """
Args:
    predictions (`list` of `int`): Predicted labels.
    references (`list` of `int`): Right labels.
    labels (`list` of `int`, *optional*): The labels to average over. By default those that occur in predictions or references.
    pos_label (`int`, *optional*, defaults to 1): The label whose F1 is meant, for `average="binary"`.
    average (`str`, *optional*, defaults to `"binary"`):
        `"binary"`: the F1 of `pos_label`; `"macro"`: the mean over labels; `"weighted"`: the mean over labels, weighted by how
        often they occur in the references; `"micro"`: from the sums of TP, FP and FN; `None`: one number for each label.

Returns:
    `dict`: `f1`.

Example:

    >>> f1 = evaluate.load("metrics/f1")
    >>> f1.compute(predictions=[0, 1, 1, 0], references=[0, 1, 0, 0])["f1"]
    0.6666666666666666
    >>> f1.compute(predictions=[0, 1, 2], references=[0, 2, 2], average="macro")["f1"]
    0.5555555555555555
"""
_AVERAGES = ("binary", "macro", "weighted", "micro", None)


class F1(evaluate.Metric):
    """F1 of one label, or averaged over labels."""

    def _info(self):
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation="",
            inputs_description=_INPUTS,
            features=datasets.Features({name: datasets.Value("int64") for name in ("predictions", "references")}),
        )

    def _compute(self, predictions, references, labels=None, pos_label=1, average="binary"):
        if average not in _AVERAGES:
            raise ValueError(f"average must be one of {_AVERAGES}, got {average!r}.")
        predictions, references = np.asarray(predictions), np.asarray(references)
        known = np.union1d(predictions, references)
        if average == "binary":
            if len(known) > 2:
                raise ValueError(f"average='binary' is for two labels, and there are {len(known)}: use 'macro'.")
            labels = [pos_label]
        labels = known if labels is None else np.asarray(labels)
        predicted, right = predictions == labels[:, None], references == labels[:, None]
        hits, occurrences = (predicted & right).sum(1), right.sum(1)
        errors = predicted.sum(1) + occurrences - 2 * hits
        if average == "micro":
            hits, errors = hits.sum(keepdims=True), errors.sum(keepdims=True)
        each = 2 * hits / np.maximum(2 * hits + errors, 1)
        if average is None:
            return {"f1": each.tolist()}
        weights = occurrences if average == "weighted" else None
        return {"f1": float(np.average(each, weights=weights))}
