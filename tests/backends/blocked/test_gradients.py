# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The sums that blocks add their gradients to."""

import pytest
import torch

from hf_sparse_hopfield.backends.blocked.gradients import Gradients, StoredGradient, Wanted
from hf_sparse_hopfield.backends.blocked.layout import Layout
from hf_sparse_hopfield.backends.blocked.scores import Scores

from .problems import PLAIN


def gradients(softcap: float = 0.0, **wanted: bool) -> Gradients:
    query, key = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 7, 8)
    settings = PLAIN._replace(softcap=softcap, bias=torch.zeros(1, 1, 5, 7))
    scores = Scores(Layout.of(query, key), query, key, settings)
    return Gradients(scores, torch.randn(2, 2, 7, 3), Wanted(**{**dict.fromkeys(Wanted._fields, False), **wanted}))


@pytest.mark.parametrize("name", Wanted._fields)
def test_only_wanted_sums(name):
    sums = gradients(softcap=1.0, **{name: True})
    assert [field for field in Wanted._fields if getattr(sums, field) is not None] == [name]


def test_without_a_softcap_beta_needs_the_query():
    assert gradients(beta=True).query is not None
    assert gradients(softcap=1.0, beta=True).query is None


def test_shapes():
    sums = gradients(**dict.fromkeys(Wanted._fields, True))
    assert sums.query.shape == (2, 2, 2, 5, 8)
    assert sums.alpha.shape == sums.beta.shape == sums.sinks.shape == (2, 2, 2, 5, 1)
    assert sums.bias.shape == (1, 1, 1, 5, 7)
    assert sums.key.sum.shape == (2, 2, 7, 8) and sums.value.sum.shape == (2, 2, 7, 3)


def test_stored_gradient():
    gradient = StoredGradient(torch.ones(2, 3))
    assert not gradient.sum.any()
    gradient.add(torch.arange(6.0))
    gradient.sum[0] += 1
    gradient.add(torch.arange(6.0).view(2, 3))
    assert gradient.sum.tolist() == [[1, 3, 5], [6, 8, 10]]
