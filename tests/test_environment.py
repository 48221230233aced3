# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import re
from pathlib import Path

import pytest

from hf_sparse_hopfield.backends.native import library
from hf_sparse_hopfield.environment import environment


PYPROJECT = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize("block", ["dependencies", "cli", "compare", "gguf", "peft", "timm", "triton"])
def test_it_has_the_versions_of_dependencies_and_extras(block):
    listed = re.search(rf"^{block} = \[(.*?)\]$", PYPROJECT, re.DOTALL | re.MULTILINE).group(1)
    names = re.findall(r'"([\w-]+)>=', listed)
    assert names and {*names} <= {*environment()["versions"]}


def test_it_says_whether_there_is_a_core_and_a_compiler(monkeypatch, tmp_path):
    compiler = tmp_path / "c++"
    compiler.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(library, "missing", "a reason")
    found = environment()
    assert found["machine"]["compiled core"] == "not available: a reason"
    assert found["machine"]["C++ compiler"] == str(compiler)
    assert "a reason" in found["backends"]["cpu"]["native"]
    compiler.unlink()
    assert environment()["machine"]["C++ compiler"].startswith("none on PATH")
