# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import pytest

from hf_sparse_hopfield import benchmark
from hf_sparse_hopfield.cli import main


@pytest.mark.parametrize(("missed", "strict", "code"), [(0, True, 0), (2, False, 0), (2, True, 1)])
def test_missed_targets_fail_only_if_asked_to(missed, strict, code, monkeypatch, capsys):
    monkeypatch.setattr(benchmark, "run_and_write", lambda arguments: missed)
    assert main(["bench", "--quick", *(["--strict"] if strict else [])]) == code
    assert ("2 " in capsys.readouterr().err) == (code == 1)
