# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Length generalisation: the answers of the tasks, and a small run."""

import importlib
import json

import pytest
import torch

from .conftest import EXAMPLES


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return lambda name: importlib.import_module(name)


def by_reading(task: str, tokens: list[int], place: int, symbols: int) -> int:
    """The answer at a place, found by reading what comes before it."""
    before = tokens[: place + 1]
    mark, ask = symbols, symbols + 1
    if task == "maximum":
        return max(before)
    if task == "marked":
        return before[before.index(mark) + 1]
    if task == "recall":
        return before[before.index(before[-1]) + 1]
    if task == "flip-flop":
        return next(token for token in reversed(before) if token < 2)
    assert ask not in before
    return before[place - before.index(mark)]


@pytest.mark.parametrize("task", ["maximum", "marked", "recall", "flip-flop", "copy"])
@pytest.mark.parametrize("length", [32, 64, 200])
def test_answers(script, task, length):
    tasks = script("length_tasks")
    generator = torch.Generator().manual_seed(0)
    tokens, answers = tasks.TASKS[task](20, length, generator)
    assert tokens.shape == answers.shape == (20, length)
    assert int(tokens.min()) >= 0 and int(tokens.max()) < tasks.VOCABULARY
    asked = 0
    for row, expected in zip(tokens.tolist(), answers.tolist(), strict=True):
        for place, answer in enumerate(expected):
            if answer != tasks.NOTHING:
                asked += 1
                assert by_reading(task, row, place, tasks.SYMBOLS) == answer
    assert asked >= 20 * 15


def test_a_cell_trains_and_reports(script, tmp_path):
    run = script("length_generalisation")
    command = ["--quick", "--output_dir", str(tmp_path), "--only", "recall/none/entmax-1.5-length-power/seed0"]
    run.main([*command, "--longest", "64"])
    (cell,) = json.loads((tmp_path / "length_generalisation.json").read_text())["cells"].values()
    assert cell["result"]["answers"] == {"64": 256 * 16}
    assert len(cell["result"]["length_power"]) == run.LAYERS
    assert "| entmax 1.5, length power |" in (tmp_path / "length_generalisation.md").read_text()
