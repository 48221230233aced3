# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The command measures, and writes what it finds."""

import json

import pytest

from hf_sparse_hopfield.backends.native import library
from hf_sparse_hopfield.benchmark import Work, suite
from hf_sparse_hopfield.benchmark.memory_search import search_records
from hf_sparse_hopfield.cli.main import main


def test_main_writes_everything(tmp_path, monkeypatch, capsys):
    small = [
        (Work(kind, 1, 2, 130, alpha, 4), ["blocked", "auto"])
        for kind in ("forward", "training")
        for alpha in (2.0, 1.5)
    ]
    monkeypatch.setattr(suite, "works", lambda quick: small)
    monkeypatch.setattr(suite, "lengths", lambda quick: small[:1])
    decode = Work("decode", 1, 4, 700, 2.0, 8, kv_heads=2)
    monkeypatch.setattr(suite, "decodes", lambda quick: [decode])
    monkeypatch.setattr(suite, "search_records", lambda patterns, seconds: search_records(2000, 16, 0.0))
    assert suite.main(["--seconds", "0", "--no_memory", "--output_dir", str(tmp_path / "out")]) == 0
    assert "44 more are not measured at these sizes" in capsys.readouterr().out
    results = json.loads((tmp_path / "out/attention.json").read_text())
    assert {r["method"] for r in results["records"]} == {"sdpa", "blocked", "auto"}
    assert "| work (batch, heads, length, head dim) |" in (tmp_path / "out/attention.md").read_text()
    assert (tmp_path / "out/attention.png").stat().st_size > 1000
    assert (
        main(["bench", "--seconds", "0", "--no_memory", "--output_dir", str(tmp_path / "out"), "--json", "--debug"])
        == 0
    )
    assert {r["method"] for r in json.loads(capsys.readouterr().out)["records"]} == {"sdpa", "blocked", "auto"}
    missed = [{"met": False, "text": "", "promised": "", "measured": None}]
    monkeypatch.setattr(suite, "check_bars", lambda *args: missed)
    monkeypatch.setattr(suite, "markdown", lambda results: "")
    options = ["--seconds", "0", "--no_memory", "--output_dir", str(tmp_path / "out")]
    assert suite.main(options) == 0 and suite.main([*options, "--strict"]) == 1
    assert main(["bench", "--threads", "0"]) == 1


@pytest.mark.skipif(library.missing is not None, reason="needs the compiled core")
def test_instruction_sets_are_limited_and_refused():
    best = suite.instructions()
    try:
        suite.limit_instructions("generic")
        assert suite.instructions() == "generic" and not suite.has_vnni()
        with pytest.raises(ValueError, match="--instructions AVX9: this processor has no such set; generic is in use"):
            suite.limit_instructions("AVX9")
    finally:
        library.limit_level(-1)
    assert suite.instructions() == best
