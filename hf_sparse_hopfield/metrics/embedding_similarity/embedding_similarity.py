# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Whether two models embed the same samples alike, as a comparison of evaluate."""

import datasets
import evaluate
import numpy as np


_DESCRIPTION = """Whether two models embed the same samples alike: the cosine of the two embeddings of each sample, and the share of its
nearest neighbours, by cosine among the samples, that both models agree on."""
_INPUTS = """
Args:
    predictions1 (`list` of `list` of `float`): Embeddings of the samples by the first model.
    predictions2 (`list` of `list` of `float`): Embeddings of the same samples by the second one.
    neighbours (`int`, *optional*, defaults to 10): How many nearest neighbours to compare, fewer than there are samples.

Returns:
    `dict`: `cosine`, one number for each sample; `same_neighbours`, one number for each sample.

Example:

    >>> similarity = evaluate.load("metrics/embedding_similarity")
    >>> same = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
    >>> similarity.compute(predictions1=same, predictions2=same, neighbours=1)["same_neighbours"]
    [1.0, 1.0, 1.0]
"""


class EmbeddingSimilarity(evaluate.Comparison):
    """Cosines and common neighbours of two sets of embeddings."""

    def _info(self):
        vectors = datasets.Sequence(datasets.Value("float32"))
        return evaluate.ComparisonInfo(
            description=_DESCRIPTION,
            citation="",
            inputs_description=_INPUTS,
            features=datasets.Features(dict.fromkeys(("predictions1", "predictions2"), vectors)),
        )

    def _compute(self, predictions1, predictions2, neighbours=10):
        first, second = (_scaled(np.asarray(vectors, dtype=np.float64)) for vectors in (predictions1, predictions2))
        if not 0 < neighbours < len(first):
            raise ValueError(
                f"neighbours must be at least 1 and fewer than the {len(first)} samples, got {neighbours}."
            )
        shared = (_nearest(first, neighbours)[:, :, None] == _nearest(second, neighbours)[:, None, :]).any(2)
        return {"cosine": (first * second).sum(1).tolist(), "same_neighbours": shared.mean(1).tolist()}


def _scaled(vectors):
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def _nearest(vectors, count):
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, -2)
    return np.argpartition(-cosines, count - 1, axis=1)[:, :count]
