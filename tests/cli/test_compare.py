# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import json

from hf_sparse_hopfield.cli import main
from hf_sparse_hopfield.demo.text import TEXT

from ..comparison.conftest import language_models  # noqa: F401


def test_compare(language_models, tmp_path, capsys):  # noqa: F811
    (tmp_path / "text.txt").write_text(TEXT)
    arguments = ["compare", *language_models, "--task", "text-generation", "--data", str(tmp_path / "text.txt")]
    arguments += ["--length", "16", "--samples", "5", "--batch_size", "2", "--no_memory", "--bf16"]
    assert main([*arguments, "--html", str(tmp_path / "report.html")]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "5 samples in 3 batches" in printed and "standard error" in printed and "report.html" in printed
    for row in ("perplexity", "loss", "seconds per batch", "keys with weight (%)", "mean support", "mean entropy"):
        assert row in printed and row in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert main([*arguments, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["settings"]["dtype"] == "bfloat16" and report["memory"] == {}
    assert report["quality"]["perplexity"]["difference"]["standard_error"] > 0
    assert f"{report['quality']['loss']['dense']:.5g}" in printed

    dense, sparse = language_models
    assert main(["compare", sparse, dense, *arguments[3:]]) == 1
    assert "is sparse: exchange the two" in capsys.readouterr().err
    assert main([*arguments, "--html", str(tmp_path / "no" / "report.html")]) == 1
    assert "no directory" in capsys.readouterr().err
    assert main([*arguments, "--samples", "0"]) == 1
    assert "samples must be an integer of at least 1" in capsys.readouterr().err
