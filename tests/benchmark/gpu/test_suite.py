# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The command measures on the device, and writes what it finds."""

import json

import pytest

from hf_sparse_hopfield.benchmark.gpu import suite
from hf_sparse_hopfield.cli.main import main

from ...backends.triton.conditions import needs_kernels


pytestmark = [*needs_kernels, pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")]


def test_bench(device, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(suite, "find_device", lambda name: device)
    options = ["--device", device.name, "--quick", "--seconds", "0", "--output_dir", str(tmp_path / "out"), "--json"]
    assert main(["bench", *options, "--debug"]) == 0
    printed = capsys.readouterr()
    results = json.loads((tmp_path / "out/attention_gpu.json").read_text())
    assert json.loads(printed.out) == results
    assert "promises no figures for GPUs" in printed.err and "promises" in results["bars"]
    assert {record["kind"] for record in results["records"]} == {"forward", "training", "decode"}
    found = {(record["kind"], record["method"]) for record in results["records"]}
    assert {("forward", "triton"), ("training", "triton"), ("decode", "triton"), ("decode", "screened")} <= found
    assert {("forward", "sdpa"), ("training", "sdpa"), ("decode", "sdpa"), ("forward", "flex")} <= found
    for record in results["records"]:
        assert record["seconds"] > 0 and record["ratio"] > 0
        assert (record["graph_seconds"] is not None) == (record["kind"] == "decode")
        assert (record["tiles"] is not None) == (record["method"] == "triton" and record["kind"] != "decode")
    text = (tmp_path / "out/attention_gpu.md").read_text()
    assert "## Decode" in text and results["device"]["torch"] in text
    assert (tmp_path / "out/attention_gpu.png").stat().st_size > 1000
