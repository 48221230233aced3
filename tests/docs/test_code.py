# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""What README and docs show runs, and their links lead somewhere."""

import importlib.util
import os
import re
import shlex
import subprocess

import pytest

from hf_sparse_hopfield.cli.main import make_parser

from ..parallel.launch import torchrun
from .code_blocks import PAGES, ROOT, SETUP, blocks


IN_PROCESSES = "docs/parallel.md"
BLOCKS = [
    pytest.param(page, block, id=f"{page}-{number}")
    for page in PAGES
    for number, block in enumerate(blocks(page, "python"))
    if page != IN_PROCESSES
]
COMMANDS = [
    pytest.param(line, id=f"{page}-{number}")
    for page in PAGES
    for number, line in enumerate("\n".join(blocks(page, "bash")).replace("\\\n", " ").splitlines())
    if line.strip() and line[0] != "#"
]
OURS = "hf-sparse-hopfield "


@pytest.mark.parametrize(("page", "block"), BLOCKS)
def test_python_runs(page, block, tmp_path, monkeypatch):
    if page == "docs/kernels.md" and importlib.util.find_spec("kernels") is None:
        pytest.skip("needs the package kernels")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", os.environ.copy())
    names: dict = {}
    exec(SETUP.get(page, ""), names)
    exec(compile(block, page, "exec"), names)


@pytest.mark.slow
@pytest.mark.parametrize("block", blocks(IN_PROCESSES, "python"))
def test_python_in_two_processes_runs(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "script.py"
    script.write_text(SETUP[IN_PROCESSES] + block, encoding="utf-8")
    torchrun(str(script))


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_are_those_of_the_programs(line):
    """Commands that need the Hub or minutes do not run here; their options must exist."""
    words = shlex.split(line, comments=True)
    if line.startswith(OURS):
        end = next((place for place, word in enumerate(words) if word in (">", "|", "&&")), len(words))
        make_parser().parse_args(words[1:end])
        return
    assert subprocess.run(["bash", "-n", "-c", line]).returncode == 0
    for word in words:
        if re.fullmatch(r"(examples|tests|conversion|\.ci)/[\w./-]+", word):
            assert (ROOT / word).exists(), word


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        if "://" in target:
            continue
        file = ((ROOT / page).parent / path).resolve() if path else ROOT / page
        assert file.exists(), target
        if anchor and file.suffix == ".md":
            assert anchor in _anchors(file.read_text(encoding="utf-8")), target


def _anchors(text: str) -> set[str]:
    """The anchors of headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain}
