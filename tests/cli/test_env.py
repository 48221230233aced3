# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import json

from hf_sparse_hopfield import __version__
from hf_sparse_hopfield.backends.native import library
from hf_sparse_hopfield.cli import main


def test_env_tells_what_a_report_needs(capsys, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_TOKEN", "secret")
    monkeypatch.setattr(library, "missing", "no C++ compiler")
    assert main(["env"]) == 0
    printed = capsys.readouterr().out
    assert f"- hf-sparse-hopfield: {__version__}\n" in printed and "- HF_HUB_OFFLINE: 1\n" in printed
    assert "- native: not available: the compiled core is not built (no C++ compiler)\n" in printed
    assert "- blocked: available\n" in printed and "secret" not in printed
    assert main(["env", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["backends"]["cpu"]) == {"dense", "native", "triton", "blocked", "reference"}
    assert found["backends"]["cpu"]["reference"] is None and found["machine"]["processors"] >= 1
