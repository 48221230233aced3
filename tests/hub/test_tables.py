# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
from hf_sparse_hopfield import to_sparse_hopfield
from hf_sparse_hopfield.hub.tables import numbers_table, settings_table

from ..tiny_models import tiny_model


def test_settings_are_spans_over_the_heads():
    overrides = {0: {"alpha": [1.0, 1.5, 1.5, 2.0]}, 1: {"beta": 3.0}}
    model = to_sparse_hopfield(tiny_model("bert"), {"alpha": 1.5, "steps": 2, "overrides": overrides})
    first, second = settings_table(model, {"bert.encoder.layer.0.attention.self": [0.1, 0.3]}).splitlines()[2:]
    assert first == "| bert.encoder.layer.0.attention.self | 4 | 1 to 2 | 1 | 2 | 20.0% |"
    assert second.endswith("| 4 | 1.5 | 3 | 2 |  |")


def test_numbers_and_texts():
    assert numbers_table({"dense_loss": 1 / 3, "signature": "nrefs:1"}).splitlines()[2:] == [
        "| dense loss | 0.3333 |",
        "| signature | nrefs:1 |",
    ]
