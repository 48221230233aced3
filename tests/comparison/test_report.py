# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import json
import re

from hf_sparse_hopfield.comparison import ComparisonReport, write_comparison
from hf_sparse_hopfield.comparison.estimates import Estimate
from hf_sparse_hopfield.comparison.report import Row


def report():
    return ComparisonReport(
        dense="dense <1>",
        sparse="sparse",
        task="text-classification",
        data="rows.csv",
        samples=100,
        batches=7,
        settings={"length": 512, "batch_size": 16},
        quality={
            "accuracy": Row(0.91, 0.905, difference=Estimate(-0.005, 0.00312)),
            "macro_f1": Row(0.9, 0.9, difference=Estimate(0.0, None)),
        },
        agreement={"same_label": Estimate(0.97, 0.0171)},
        speed={"seconds_per_batch": Row(0.5, 0.25, ratio=Estimate(0.5, 0.021))},
        memory={"peak_memory_bytes": Row(2e8, 1e8)},
        support={"share_of_keys": Row(1.0, 0.25)},
    )


def test_lines_have_the_digits_of_their_standard_error():
    assert report().lines() == [
        ("accuracy", "0.91", "0.905", "-0.0050 ± 0.0031"),
        ("macro F1", "0.9", "0.9", "+0"),
        ("seconds per batch", "0.5", "0.25", "0.500 ± 0.021 times"),
        ("peak memory (MB)", "200", "100", "0.5 times"),
        ("keys with weight (%)", "100", "25", "0.25 times"),
        ("same label as dense", "", "0.970 ± 0.017", ""),
    ]


def test_json():
    found = json.loads(report().to_json_string())
    assert found["quality"]["accuracy"] == {
        "dense": 0.91,
        "sparse": 0.905,
        "difference": {"value": -0.005, "standard_error": 0.00312},
    }
    assert found["quality"]["macro_f1"]["difference"] == {"value": 0.0}
    assert found["agreement"]["same_label"]["value"] == 0.97
    assert found["memory"]["peak_memory_bytes"]["ratio"] == {"value": 0.5}
    assert (found["samples"], found["settings"]["length"]) == (100, 512)


def test_html_is_one_file_that_loads_nothing(tmp_path):
    write_comparison(report(), tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "dense &lt;1&gt;" in page and "<1>" not in page and "-0.0050 ± 0.0031" in page
    assert len(re.findall("<tr>", page)) == 7
    assert not re.search(r"https?://|src=|<script|<link", page)
