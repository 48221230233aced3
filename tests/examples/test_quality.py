# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import json
import math
import sys
from pathlib import Path

import pytest

from hf_sparse_hopfield import to_sparse_hopfield
from hf_sparse_hopfield.demo import make_tokenizer
from hf_sparse_hopfield.demo.text import TEXT

from ..tiny_models import tiny_model


@pytest.fixture
def quality(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "examples" / "conversion")
    import quality

    yield quality
    sys.modules.pop("quality", None)


def test_models_are_compared_once(quality, tmp_path, capsys):
    tokenizer = make_tokenizer()
    dense = tiny_model("llama", vocab_size=len(tokenizer))
    dense.save_pretrained(tmp_path / "dense")
    tokenizer.save_pretrained(tmp_path / "dense")
    to_sparse_hopfield(dense, {"alpha": 2.0, "beta": 9.0}).save_pretrained(tmp_path / "sparse")
    (tmp_path / "text.txt").write_text(TEXT)
    arguments = ["--dense", str(tmp_path / "dense"), "--sparse", str(tmp_path / "sparse")]
    arguments += ["--text", str(tmp_path / "text.txt"), "--length", "16", "32", "--windows", "4", "2"]
    arguments += ["--output", str(tmp_path / "figures.json")]
    quality.main(arguments)
    table = capsys.readouterr().out
    assert table.count("| text |") == 3 and "%" in table
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert sorted(len(found["losses"]) for found in figures.values()) == [2, 2, 4, 4]
    before = (tmp_path / "figures.json").stat().st_mtime_ns
    quality.main(arguments)
    assert (tmp_path / "figures.json").stat().st_mtime_ns == before and capsys.readouterr().out == table


def test_differences_are_paired(quality):
    mean, error = quality.difference([2.1, 3.1, 4.1], [2.0, 3.0, 4.0])
    assert mean == pytest.approx(100 * math.expm1(0.1)) and error == pytest.approx(0.0, abs=1e-9)
