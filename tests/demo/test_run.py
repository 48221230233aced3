# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import pytest

from hf_sparse_hopfield.demo import run_demo


def test_too_few_steps_are_refused(tmp_path):
    with pytest.raises(ValueError, match="steps must be at least 5, got 4"):
        run_demo(str(tmp_path / "out"), steps=4)
    assert list(tmp_path.iterdir()) == []


def test_a_quiet_demo_prints_nothing_and_returns_its_tables(tmp_path, capsys):
    result = run_demo(str(tmp_path / "out"), steps=5, quiet=True)
    assert capsys.readouterr().out == ""
    assert [row["model"] for row in result["models"]] == [
        "dense (softmax)",
        "then fine-tuned",
        "sparse (sparsemax)",
        "beta calibrated",
        "then fine-tuned",
    ]
    assert result["equal_after_reloading"] and (tmp_path / "out" / "model" / "config.json").is_file()
