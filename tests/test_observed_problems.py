# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import torch

from hf_sparse_hopfield import retrieve, to_sparse_hopfield
from hf_sparse_hopfield.backends import RetrievalProblem
from hf_sparse_hopfield.backends.support import row_supports
from hf_sparse_hopfield.observation import observed
from hf_sparse_hopfield.observed_problems import evaluate, evaluate_dense, evaluate_weights, sampled, visible_keys

from .test_observation import Recorder
from .tiny_models import tiny_inputs, tiny_model, tiny_output


def test_other_settings():
    query, key, value = torch.randn(3, 2, 4, 6, 8).unbind()
    problem = RetrievalProblem(query, key, value, scaling=0.5, beta=2.0, alpha=1.0, steps=2)
    beta = torch.tensor([0.5, 1.0, 2.0, 4.0])
    expected, weights = retrieve(
        query, key, value, scaling=0.5, beta=2 * beta, alpha=1.5, steps=2, return_weights=True, backend="reference"
    )
    torch.testing.assert_close(evaluate(problem, beta, 1.5).output, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(evaluate_weights(problem, beta, 1.5), weights)
    dense = retrieve(query, key, value, scaling=0.5, beta=2.0, alpha=1.0)
    torch.testing.assert_close(evaluate_dense(problem).output, dense, rtol=1e-4, atol=1e-5)


def test_visible_keys_count_neither_masked_keys_nor_padding():
    query, key, value = torch.randn(3, 1, 2, 5, 8).unbind()
    causal = RetrievalProblem(query, key, value, scaling=1.0, is_causal=True)
    assert visible_keys(causal).tolist() == [[[1, 2, 3, 4, 5]]]
    padding = torch.tensor([True, True, True, False, False])[None, None, None]
    assert visible_keys(RetrievalProblem(query, key, value, scaling=1.0, mask=padding)).tolist() == [[[3, 3, 3, 0, 0]]]


def test_sampled_rows_are_rows_of_the_whole():
    model = to_sparse_hopfield(tiny_model("llama"))
    recorder = Recorder()
    with observed(model, recorder):
        tiny_output(model, tiny_inputs("llama", batch=3))
    problem = next(iter(recorder.problems.values()))
    smaller, visible = sampled(problem, 6, torch.Generator().manual_seed(0))
    assert smaller.query.shape[0] * smaller.query.shape[2] <= 6
    whole = evaluate_dense(problem, return_weights=True).weights.flatten(0, 0)
    rows = evaluate_dense(smaller, return_weights=True).weights
    for sample, row in ((s, r) for s in range(rows.shape[0]) for r in range(rows.shape[2])):
        assert any(
            torch.allclose(whole[s, :, r], rows[sample, :, row], atol=1e-6)
            for s in range(whole.shape[0])
            for r in range(whole.shape[2])
        )
        assert int(visible[sample, 0, row]) == int((rows[sample, 0, row] > 0).sum())


def test_segments_count():
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 2, 2, 6, 8).unbind()
    numbers = torch.tensor([[1, 1, 2, 2, 2, 2], [1, 1, 1, 1, 1, 3]], dtype=torch.int32)
    mask = (numbers[:, :, None] == numbers[:, None])[:, None]
    packed = RetrievalProblem(query, key, value, scaling=1.0, segments=(numbers, numbers), is_causal=True)
    masked = RetrievalProblem(query, key, value, scaling=1.0, mask=mask, is_causal=True)
    assert visible_keys(packed).tolist() == [[[1, 2, 1, 2, 3, 4]], [[1, 2, 3, 4, 5, 1]]]
    for backend in ("auto", "blocked", "reference"):
        expected = evaluate(masked, 2.0, 1.5, backend=backend).output
        torch.testing.assert_close(evaluate(packed, 2.0, 1.5, backend=backend).output, expected)
    torch.testing.assert_close(evaluate_dense(packed).output, evaluate_dense(masked).output)
    (some, counted), (same, _) = (sampled(p, 4, torch.Generator().manual_seed(1)) for p in (packed, masked))
    weights = evaluate_weights(some, 1.0, 1.0)
    torch.testing.assert_close(weights, evaluate_weights(same, 1.0, 1.0))
    assert (weights > 0).sum(-1)[:, :1].equal(counted)


def test_supports_of_segments():
    torch.manual_seed(0)
    query, numbers = torch.randn(1, 1, 6, 8), torch.tensor([[1, 1, 2, 2, 2, 2]])
    problem = RetrievalProblem(query, 3 * torch.randn(1, 1, 6, 8), query, scaling=1.0, segments=(numbers, numbers))
    weights = evaluate_weights(problem, 1.0, 2.0)[0, 0]
    found = [[key for key in row if key >= 0] for row in row_supports(problem).tolist()]
    assert found == [row.nonzero().flatten().tolist() for row in weights] and (weights[2:, :2] == 0).all()
