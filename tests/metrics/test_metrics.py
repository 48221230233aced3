# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The metrics against independent computations, and their examples."""

import doctest
import math
import pathlib

import evaluate
import numpy as np
import pytest

import hf_sparse_hopfield
from hf_sparse_hopfield.metrics import METRICS, load_metric


PACKAGE = pathlib.Path(hf_sparse_hopfield.__file__).parent


@pytest.mark.parametrize("name", METRICS)
def test_examples(name, monkeypatch):
    monkeypatch.chdir(PACKAGE)
    usage = load_metric(name).inputs_description
    test = doctest.DocTestParser().get_doctest(usage, {"evaluate": evaluate}, name, None, None)
    assert test.examples and doctest.DocTestRunner().run(test).failed == 0


def test_classification_equals_sklearn():
    metrics = pytest.importorskip("sklearn.metrics", reason="the independent computation")
    draw = np.random.default_rng(0)
    for classes in (2, 5):
        right = draw.integers(0, classes, 200)
        found = np.where(draw.random(200) < 0.6, right, draw.integers(0, classes + 1, 200))  # one label never occurs
        pairs = {"predictions": found, "references": right}
        assert load_metric("accuracy").compute(**pairs)["accuracy"] == metrics.accuracy_score(right, found)
        for average in ("macro", "weighted", "micro", None):
            expected = metrics.f1_score(right, found, average=average, zero_division=0)
            assert load_metric("f1").compute(**pairs, average=average)["f1"] == pytest.approx(expected)
    right, scores = draw.integers(0, 2, 200), draw.normal(size=200).round(1)  # with ties
    found = load_metric("roc_auc").compute(prediction_scores=scores, references=right)["roc_auc"]
    assert found == pytest.approx(metrics.roc_auc_score(right, scores))
    pairs = {"predictions": (scores > 0).astype(int), "references": right}
    assert load_metric("f1").compute(**pairs)["f1"] == pytest.approx(metrics.f1_score(right, scores > 0))


def test_regression():
    draw = np.random.default_rng(0)
    found, right = draw.normal(size=(2, 7, 3))
    for form in (lambda values: values, lambda values: values.reshape(-1)):
        pairs = {"predictions": form(found), "references": form(right)}
        assert load_metric("mse").compute(**pairs)["mse"] == pytest.approx(((found - right) ** 2).mean(), rel=1e-12)
        assert load_metric("mae").compute(**pairs)["mae"] == pytest.approx(abs(found - right).mean(), rel=1e-12)


def test_perplexity_weights_tokens():
    metric = load_metric("perplexity")
    found = metric.compute(losses=[1.0, 4.0, math.nan], tokens=[300, 100, 0])
    assert found == {"perplexity": math.exp(1.75), "loss": 1.75, "tokens": 400}
    assert metric.compute(losses=[1000.0], tokens=[1])["perplexity"] == math.inf
    with pytest.raises(ValueError, match="sum above 0"):
        metric.compute(losses=[1.0], tokens=[0])


def test_bleu_is_that_of_sacrebleu():
    sacrebleu = pytest.importorskip("sacrebleu", reason="BLEU")
    hypotheses = ["The cat sat on a mat.", "It is raining today, again."]
    references = [["The cat sat on the mat.", "A cat sat on the mat."], ["Today it is raining again.", "It rains."]]
    found = load_metric("sacrebleu").compute(predictions=hypotheses, references=references, lowercase=True)
    metric = sacrebleu.BLEU(lowercase=True)
    assert (
        found["score"]
        == metric.corpus_score(hypotheses, [list(texts) for texts in zip(*references, strict=True)]).score
    )
    assert found["signature"] == str(metric.get_signature())
    with pytest.raises(ValueError, match="same number of references"):
        load_metric("sacrebleu").compute(predictions=hypotheses, references=[["a"], ["b", "c"]])


def test_sparsity_refuses_what_cannot_be():
    with pytest.raises(ValueError, match="row 1 has more support"):
        load_metric("sparsity").compute(support=[1, 3], keys=[2, 2], entropy=[0, 0])
    with pytest.raises(ValueError, match="no query sees a key"):
        load_metric("sparsity").compute(support=[0], keys=[0], entropy=[0])


def test_embedding_similarity():
    draw = np.random.default_rng(0)
    first = draw.normal(size=(30, 8)).astype(np.float32)
    second = first + 0.3 * draw.normal(size=(30, 8)).astype(np.float32)
    found = load_metric("embedding_similarity").compute(predictions1=first, predictions2=second, neighbours=4)
    for row in range(30):
        cosines = [v @ v[row] / np.linalg.norm(v, axis=1) / np.linalg.norm(v[row]) for v in (first, second)]
        nearest = [set(np.argsort(-values)[1:5]) for values in cosines]
        assert found["same_neighbours"][row] == len(nearest[0] & nearest[1]) / 4
        expected = first[row] @ second[row] / np.linalg.norm(first[row]) / np.linalg.norm(second[row])
        assert found["cosine"][row] == pytest.approx(expected, rel=1e-5)
    with pytest.raises(ValueError, match="fewer than the 3 samples"):
        load_metric("embedding_similarity").compute(predictions1=first[:3], predictions2=second[:3])
