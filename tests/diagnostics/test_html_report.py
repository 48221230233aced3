# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
from hf_sparse_hopfield import to_sparse_hopfield
from hf_sparse_hopfield.diagnostics import sparsity_report, write_html_report

from ..tiny_models import tiny_inputs, tiny_model


def test_the_report_is_one_self_contained_file(tmp_path):
    report = sparsity_report(to_sparse_hopfield(tiny_model("bert"), {"beta": 3.0}), [tiny_inputs("bert")])
    write_html_report(report, tmp_path / "report.html", "A & B")
    text = (tmp_path / "report.html").read_text()
    assert "A &amp; B" in text and text.count("<tr>") == 9 and "data:image/png;base64," in text
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
