# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""A method that fails is left out with its reason, and the others are compared."""

import dataclasses
import json

import pytest
import torch

from hf_sparse_hopfield.benchmark import Work
from hf_sparse_hopfield.benchmark.gpu import measuring, suite
from hf_sparse_hopfield.benchmark.gpu.devices import InterpreterDevice
from hf_sparse_hopfield.cli.main import main
from hf_sparse_hopfield.functional import support_size


WORK = Work("forward", 1, 2, 20, is_causal=True, head_dim=16)


@pytest.fixture
def failing(monkeypatch):
    def method(name, work, device, tensors):
        def attend(query, key, value):
            if name == "broken":
                raise RuntimeError("no kernel image\nmore")
            return query + key + value

        return attend, "kernels"

    monkeypatch.setattr(measuring, "method", method)


def test_what_fails_is_named(failing):
    records, left_out = measuring.measure(WORK, ["broken", "blocked"], InterpreterDevice(), 0.0)
    assert [record["method"] for record in records] == ["sdpa", "blocked"]
    assert [(x["method"], x["reason"], x["label"]) for x in left_out] == [
        ("broken", "RuntimeError: no kernel image", WORK.label)
    ]
    assert all(record["ratio"] > 0 and record["tiles"] is None for record in records)


def test_without_dense_attention_there_is_no_ratio(failing, monkeypatch):
    whole = measuring.method
    monkeypatch.setattr(measuring, "method", lambda name, *rest: whole("broken" if name == "sdpa" else name, *rest))
    records, left_out = measuring.measure(WORK, ["blocked"], InterpreterDevice(), 0.0)
    assert [(record["method"], record["ratio"]) for record in records] == [("blocked", None)]
    assert left_out[0]["method"] == "sdpa"


def test_a_broken_graph_is_named(failing, monkeypatch):
    def broken(self, call):
        raise RuntimeError("capture")

    monkeypatch.setattr(InterpreterDevice, "graphed", broken)
    decode = Work("decode", 1, 2, 20, head_dim=16)
    records, left_out = measuring.measure(decode, ["blocked"], InterpreterDevice(), 0.0)
    assert all(record["graph_seconds"] is None for record in records)
    assert [x["method"] for x in left_out] == ["sdpa in a CUDA graph", "blocked in a CUDA graph"]


def test_inputs_that_do_not_fit_are_named(monkeypatch):
    def tensors(self, device):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(Work, "tensors", tensors)
    records, left_out = measuring.measure(WORK, ["blocked"], InterpreterDevice(), 0.0)
    assert records == [] and left_out[0]["method"] == "all"


def test_what_was_found_is_written_if_the_device_breaks(tmp_path, monkeypatch, capsys):
    found = []

    def measure(work, *rest):
        if found:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        found.append(work)
        record = {
            **dataclasses.asdict(work),
            "label": work.label,
            "method": "sdpa",
            "kernels": "flash",
            "seconds": 1.0,
        }
        others = ("ratio", "graph_seconds", "graph_ratio", "bytes", "tiles")
        return [record | {"mean_support": 8.0} | dict.fromkeys(others)], []

    monkeypatch.setattr(suite, "measure", measure)
    monkeypatch.setattr(suite, "find_device", lambda name: InterpreterDevice())
    assert main(["bench", "--device", "interpreter", "--output_dir", str(tmp_path)]) == 1
    assert "illegal memory access" in capsys.readouterr().err
    assert len(json.loads((tmp_path / "attention_gpu.json").read_text())["records"]) == 1
    assert "forward 1, 1, 20, 16" in (tmp_path / "attention_gpu.md").read_text()


def test_mean_support():
    query, key, value = WORK.tensors()
    scores = (query[0, 0] @ key[0, 0].T / 4).masked_fill(torch.ones(20, 20, dtype=torch.bool).triu(1), -torch.inf)
    expected = support_size(scores, 2.0).float().mean().item()
    assert measuring.mean_support(WORK, (query, key, value)) == pytest.approx(expected)
