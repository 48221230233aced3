# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The files around the package agree with it: versions, supported releases, the map in CONTRIBUTING.md."""

import re
import subprocess
from pathlib import Path

import pytest

from hf_sparse_hopfield import __version__


ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "hf_sparse_hopfield"
WITHOUT_AN_ENTRY = {"__pycache__", "py.typed", "version.py"}


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def rooms() -> list[Path]:
    """The paths in the map of the house: each line is indented under its folder."""
    section = read("CONTRIBUTING.md").partition("## The map of the house\n\n")[2]
    folders, paths = {}, []
    for line in section.splitlines():
        if not line.startswith("    "):
            break
        indentation, name = re.match(r"( +)(\S+)", line).groups()
        path = folders.get(len(indentation) - 2, ROOT) / name
        folders[len(indentation)] = path
        paths.append(path)
    return paths


@pytest.mark.parametrize("path", rooms(), ids=lambda path: str(path.relative_to(ROOT)))
def test_the_map_of_the_house_shows_what_is_there(path):
    assert path.exists()


def test_the_map_of_the_house_shows_every_room():
    there = {path.name for path in PACKAGE.iterdir() if path.is_dir() or path.suffix == ".py"} - WITHOUT_AN_ENTRY
    assert {path.name for path in rooms() if path.parent == PACKAGE} == there


def test_the_version_is_the_same_everywhere():
    assert re.search(r"^version: (.*)$", read("CITATION.cff"), re.MULTILINE).group(1) == __version__
    assert re.search(rf"^## \[{re.escape(__version__)}\] - \d{{4}}-\d\d-\d\d$", read("CHANGELOG.md"), re.MULTILINE)


def test_every_dependency_has_a_floor_that_can_be_tested():
    block = re.search(r"^dependencies = \[\n(.*?)^\]", read("pyproject.toml"), re.DOTALL | re.MULTILINE).group(1)
    requirements = re.findall(r'"(.*?)"', block)
    pins = subprocess.run([ROOT / ".ci" / "versions", "--print-floor"], capture_output=True, text=True, check=True)
    floor = pins.stdout.split()
    assert len(requirements) >= 5
    for requirement in requirements:
        assert re.match(r"[\w-]+>=[\d.]+", requirement).group().replace(">=", "==") in floor
    names = [pin.partition("==")[0] for pin in set(floor)]
    assert len(names) == len(set(names)), "a package has two floors"
