# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The form of a backend: what it does not read comes to it in another form."""

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from hf_sparse_hopfield import retrieve
from hf_sparse_hopfield.backends import Backend, RetrievalProblem, RetrievalResult
from hf_sparse_hopfield.backends.registry import BACKENDS
from hf_sparse_hopfield.functional import explain_backend

from .cases import cases, check


ON_CPU = [backend for backend in BACKENDS if backend.name in ("dense", "native", "blocked", "reference")]


@pytest.mark.parametrize("backend", ON_CPU, ids=lambda backend: backend.name)
@given(data=st.data())
def test_segments_in_every_backend(backend, data):
    alpha = {"alpha": 1.0} if backend.name == "dense" else {}
    case = data.draw(cases(max_length=20, segments=st.sampled_from(["row", "batch"]), **alpha))
    assume(backend.refusal(case.problem(torch.float32)[0]) is None)
    check(backend.run, case)


def problem(**options) -> RetrievalProblem:
    numbers = torch.tensor([[1, 1, 2, 2, 2]], dtype=torch.int32)
    return RetrievalProblem(*torch.randn(3, 1, 2, 5, 4), scaling=0.5, segments=(numbers, numbers), **options)


def test_a_backend_reads_segments_or_gets_a_mask():
    seen = []

    def run(problem: RetrievalProblem) -> RetrievalResult:
        seen.append(problem)
        return RetrievalResult(problem.value)

    def refusal(problem: RetrievalProblem) -> str | None:
        return None if problem.mask is None else "it takes no mask"

    given, key = problem(), torch.ones(1, 1, 1, 5, dtype=torch.bool)
    plain, reading = Backend("plain", run, refusal, 1), Backend("reading", run, refusal, 2, reads_segments=True)
    assert plain.refusal(given) == "it takes no mask" and reading.refusal(given) is None
    assert plain.refusal(problem(mask=key)) == reading.refusal(problem(mask=key)) == "it takes no mask"
    plain.run(given), reading.run(given)
    assert seen[0].segments is None and seen[0].mask.shape == (1, 1, 5, 5)
    assert seen[1] is given and given.mask is None


def test_a_question_forms_no_mask_of_all_queries_and_keys():
    numbers = torch.zeros(1, 1 << 20, dtype=torch.int32)
    states = torch.empty(1, 1, 1, 4).expand(-1, -1, 1 << 20, -1)
    assert "applies" in explain_backend(states, states, states, segments=(numbers, numbers))  # 2**40 entries


def test_segments_choose_as_a_mask_does():
    query, key, value = torch.randn(3, 2, 2, 600, 8).unbind()
    numbers = torch.arange(600)[None] // 100
    mask = (numbers[:, :, None] == numbers[:, None])[:, None]
    for options in ({}, {"alpha": 1.0}, {"alpha": 1.0, "is_causal": True}, {"return_weights": True}, {"softcap": 2.0}):
        told = explain_backend(query, key, value, segments=(numbers, numbers), **options)
        assert told == explain_backend(query, key, value, mask=mask, **options)
        result = retrieve(query, key, value, segments=(numbers, numbers), **options)
        torch.testing.assert_close(result, retrieve(query, key, value, mask=mask, **options))
