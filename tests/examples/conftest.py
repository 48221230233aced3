# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import importlib
import pathlib

import pytest
from transformers import Trainer


EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


@pytest.fixture
def script(monkeypatch):
    """Imports a script, as Python does that runs it: its directory comes first."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return lambda name: importlib.import_module(f"run_{name}")


@pytest.fixture
def no_step(monkeypatch):
    """Fails the test if any training starts."""

    def train(*args, **kwargs):
        raise AssertionError("training was started")

    monkeypatch.setattr(Trainer, "train", train)
