# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The table of roads: every way to a sparse model that could lead to dense attention, and the test that walks it.

A test that walks a road carries `@road(name, outcome)`, and the first line of its docstring says how. `python -m
tests.roads.table` writes `docs/roads.md` from these tests; `test_table.py` checks that the file is up to date.
"""

import importlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


TESTS = Path(__file__).parents[1]
TABLE = TESTS.parent / "docs" / "roads.md"
OUTCOMES = ("equal", "refused", "warned")

INTRODUCTION = """\
# Roads

Every way we know in which a sparse model is loaded, trained, served or saved, and where dense attention could slip in. Each
road ends in one of three ways:

- **equal**: the model retrieves sparsely, and its results equal those of the plain way.
- **refused**: an error says what to do instead.
- **warned**: it works, and a warning says what to look out for.

A test walks each road. `python -m tests.roads.table` writes this file from those tests.
"""


def road(name: str, outcome: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """
    Mark a test that walks a road.

    Args:
        name (`str`): The road, as a user would describe it.
        outcome (`str`): `"equal"`, `"refused"` or `"warned"`.
    """
    if outcome not in OUTCOMES:
        raise ValueError(f"outcome must be one of {OUTCOMES}, got {outcome!r}.")
    return pytest.mark.road(name, outcome)


def render() -> str:
    """The text of `docs/roads.md`."""
    parts = [INTRODUCTION]
    for module, tests in _walked():
        parts.append(
            f"\n## {_first_line(module).rstrip('.')}\n\n| road | outcome | how it is tested |\n| --- | --- | --- |\n"
        )
        link = f"../{Path(inspect.getfile(module)).relative_to(TESTS.parent).as_posix()}"
        for test, name, outcome, slow in tests:
            note = " (slow)" if slow else ""
            parts.append(f"| {name} | {outcome} | [{_first_line(test)}]({link}){note} |\n")
    return "".join(parts)


def _walked() -> Iterator[tuple[Any, list[tuple[Any, str, str, bool]]]]:
    """The test modules that walk roads, with their tests in the order of the file."""
    for path in sorted(TESTS.rglob("test_*.py")):
        if "@road(" not in path.read_text(encoding="utf-8") or path.name == "test_table.py":
            continue
        name = ".".join(path.relative_to(TESTS.parent).with_suffix("").parts)
        module = importlib.import_module(name)
        yield module, [row for value in vars(module).values() for row in _roads_of(value)]


def _roads_of(value: Any) -> Iterator[tuple[Any, str, str, bool]]:
    marks = getattr(value, "pytestmark", []) if callable(value) else []
    slow = any(mark.name == "slow" for mark in marks)
    for mark in marks:
        if mark.name == "road":
            yield value, *mark.args, slow


def _first_line(documented: Any) -> str:
    text = inspect.getdoc(documented)
    if not text:
        raise ValueError(f"{documented.__name__} walks a road, and its docstring must say how.")
    return text.partition("\n")[0]


if __name__ == "__main__":
    TABLE.write_text(render(), encoding="utf-8")
