# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Each recipe runs as it stands in its page; what it promises, it asserts."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import ByT5Tokenizer

from hf_sparse_hopfield import retrieve, to_sparse_hopfield

from ..tiny_models import tiny_model
from .code_blocks import ROOT, blocks
from .recipes import RECIPES, RUNNABLE, missing, scripts


FAST: set[str] = set()


class Retrieval(torch.nn.Module):
    def forward(self, query, key, value):
        return retrieve(query, key, value)


def pages(names):
    for name in names:
        yield pytest.param(name, id=Path(name).stem, marks=() if Path(name).stem in FAST else pytest.mark.slow)


@pytest.mark.parametrize("page", pages(RUNNABLE))
def test_recipe_runs(page, tmp_path, monkeypatch):
    absent = missing(page)
    if absent:
        pytest.skip(f"needs {' '.join(absent)}: .ci/recipes installs what the recipes need")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", os.environ.copy())
    names: dict = {"__name__": "__main__"}
    for number, block in enumerate(blocks(page, "python")):
        exec(compile(block, f"{page}-{number}", "exec"), names)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for script in scripts(page):
        command = ["bash", "-euo", "pipefail", "-c", script]
        done = subprocess.run(command, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr[-3000:]


def test_the_index_lists_every_recipe():
    index = (ROOT / "docs/recipes/README.md").read_text(encoding="utf-8")
    assert {f"docs/recipes/{name}" for name in re.findall(r"\]\((\w+\.md)\)", index)} >= {*RECIPES}


@pytest.mark.parametrize("page", ["docs/recipes/README.md", *RECIPES])
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s#]+)", (ROOT / page).read_text(encoding="utf-8")):
        assert "://" in target or (ROOT / page).parent.joinpath(target).exists(), target


@pytest.mark.slow
def test_a_program_with_our_operators_does_not_become_onnx():
    pytest.importorskip("onnxscript", reason="torch.onnx.export needs it")
    patterns = tuple(torch.randn(3, 1, 2, 8, 4))
    program = torch.export.export(Retrieval(), patterns)
    with pytest.raises(Exception, match=r"No ONNX function found for .*hf_sparse_hopfield\."):
        torch.onnx.export(program, dynamo=True, verbose=False)


@pytest.mark.slow
def test_sentence_transformers_has_no_onnx(tmp_path):
    package = pytest.importorskip("sentence_transformers", reason="needs sentence-transformers")
    to_sparse_hopfield(tiny_model("bert")).save_pretrained(tmp_path)
    ByT5Tokenizer().save_pretrained(tmp_path)
    with pytest.raises(Exception, match="requires installing Optimum"):
        package.SentenceTransformer(str(tmp_path), backend="onnx", device="cpu")
