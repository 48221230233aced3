# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The list of backends and the choice among them."""

import dataclasses
import subprocess
import sys

import pytest
import torch

from hf_sparse_hopfield import backends, retrieve
from hf_sparse_hopfield.backends import (
    Backend,
    RetrievalProblem,
    RetrievalResult,
    available_backends,
    registry,
    select_backend,
)
from hf_sparse_hopfield.functional import explain_backend
from hf_sparse_hopfield.retrieval import canonical


ORDER = ["dense", "native", "triton", "blocked", "reference"]


def test_order_of_auto():
    assert available_backends() == ORDER
    assert [backend.name for backend in registry.BACKENDS] == ORDER
    assert available_backends()[-1] == "reference"


def test_priorities_are_distinct_and_give_the_order():
    priorities = {backend.name: backend.priority for backend in registry.BACKENDS}
    assert len(set(priorities.values())) == len(priorities)
    assert sorted(priorities, key=priorities.get, reverse=True) == ORDER


@pytest.mark.parametrize("name", ORDER)
def test_the_documented_priority_is_the_real_one(name):
    (row,) = [line for line in backends.__doc__.splitlines() if line.startswith(f"| `{name}`")]
    priority = next(backend.priority for backend in registry.BACKENDS if backend.name == name)
    assert int(row.split("|")[2]) == priority


def test_the_registry_cannot_be_changed():
    assert isinstance(registry.BACKENDS, tuple)
    with pytest.raises(dataclasses.FrozenInstanceError):
        registry.BACKENDS[0].priority = -1
    available_backends().clear()  # a copy
    assert available_backends() == ORDER
    assert not [name for name in (*vars(registry), *backends.__all__) if "register" in name]


@pytest.mark.parametrize("module", [*ORDER, "blocked.decode", "native.library", "registry"])
def test_the_order_does_not_depend_on_what_is_imported_first(module):
    code = (
        f"import hf_sparse_hopfield.backends.{module}\n"
        "from hf_sparse_hopfield.backends import available_backends\n"
        "print(*available_backends())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ORDER


def test_unknown_name():
    problem = RetrievalProblem(*torch.randn(3, 1, 2, 5, 4), scaling=0.5)
    with pytest.raises(ValueError, match="backend='flash'.*'reference'"):
        select_backend(problem, "flash")


def test_a_backend_is_chosen_when_it_applies(monkeypatch):
    always = Backend("always", lambda p: RetrievalResult(p.query), refusal=lambda p: None, priority=0)
    picky = Backend(
        "picky",
        lambda p: RetrievalResult(p.value),
        refusal=lambda p: "steps > 1" if p.steps > 1 else None,
        priority=1,
    )
    monkeypatch.setattr(registry, "BACKENDS", (picky, always))
    query, key, value = torch.randn(3, 1, 2, 5, 4).unbind()
    assert retrieve(query, key, value) is value
    assert retrieve(query, key, value, steps=2) is query
    assert explain_backend(query, key, value, steps=2) == "always: the first that applies (picky: steps > 1)"
    with pytest.raises(ValueError, match="'picky' cannot serve.*steps > 1"):
        retrieve(query, key, value, steps=2, backend="picky")
    assert select_backend(canonical(RetrievalProblem(query, key, value)))[0].name == "picky"
