# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""RESULTS.md is made from sections, and the one in the repository matches its sections."""

import importlib
import json
import shutil
from pathlib import Path

import harness
import pytest
import report
from reporting import claims


PAPER = Path(report.__file__).parent


def test_report(tmp_path):
    results = tmp_path / "results"
    results.mkdir()
    rows = [("it holds", "reproduced", "a | b"), ("it does not", "not", "c")]
    text = "## 1. Memory\n\n" + claims(rows) + "![curves](memory.png) [paper](https://example.org)\n"
    (results / "memory.md").write_text(text)
    assert report.claims_of(text) == [("it holds", "reproduced"), ("it does not", "not")]
    assert "1. a | b\n2. c\n" in text
    report.main(["--results_dir", str(results), "--output", str(tmp_path / "RESULTS.md")])
    made = (tmp_path / "RESULTS.md").read_text()
    assert "| [1. Memory](#1-memory) | it holds | **reproduced** |" in made
    assert "1 reproduced, 1 not, 5 not run." in made and "| time series | - | **not run** |" in made
    assert "](results/memory.png)" in made and "](https://example.org)" in made

    (results / "energy.md").write_text("## 6. Energy\n\nno claims\n")
    with pytest.raises(ValueError, match="energy.md has no table of claims"):
        report.make_report(results, tmp_path / "RESULTS.md")
    (results / "energy.md").write_text("no heading\n")
    with pytest.raises(ValueError, match="energy.md has no heading"):
        report.make_report(results, tmp_path / "RESULTS.md")
    with pytest.raises(ValueError, match="--results_dir"):
        report.main(["--results_dir", str(tmp_path / "nothing")])


@pytest.mark.parametrize(
    "name",
    ["bit_pattern", "multiple_instance", "time_series", "translation", "energy"]
    + [pytest.param("memory", marks=pytest.mark.slow)],  # its pictures take long
)
def test_sections_come_from_the_records_without_data(name, tmp_path):
    pytest.importorskip("matplotlib", reason="the report has pictures")
    shutil.copy(PAPER / "results" / f"{name}.json", tmp_path)
    importlib.import_module(name).main(["--report_only", "--output_dir", str(tmp_path)])
    assert (tmp_path / f"{name}.md").read_text() == (PAPER / "results" / f"{name}.md").read_text()


@pytest.mark.parametrize(
    "name", ["memory", "bit_pattern", "multiple_instance", "time_series", "translation", "energy"]
)
def test_a_full_run_would_run_no_stored_cell_again(name, monkeypatch):
    if name in ("translation", "multiple_instance"):
        pytest.importorskip(
            {"translation": "sacrebleu", "multiple_instance": "sklearn"}[name], reason="the experiment"
        )
    experiment = importlib.import_module(name)
    monkeypatch.setattr(experiment, "run", lambda name, arguments, cells, report: cells)
    cells = experiment.main(["--report_only"])
    stored = harness.load(PAPER / "results" / f"{name}.json")["cells"]
    for cell, entry in stored.items():
        assert entry["settings"] == json.loads(harness.to_json(cells[cell].stored)), cell


def test_the_report_in_the_repository_is_up_to_date():
    if not (PAPER / "RESULTS.md").exists():
        pytest.skip("examples/paper/RESULTS.md is not there")
    made = report.make_report(PAPER / "results", PAPER / "RESULTS.md") + "\n"
    assert (PAPER / "RESULTS.md").read_text(encoding="utf-8") == made
    for line in made.splitlines():
        if line.startswith("!["):
            assert (PAPER / line.partition("](")[2].rstrip(")")).exists(), line
