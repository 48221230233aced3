# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import sys
import time

import pytest

from hf_sparse_hopfield import progress
from hf_sparse_hopfield.progress import duration, progress_bar, stage


@pytest.fixture
def soon(monkeypatch):
    """Lines and bars appear at once."""
    for kind in (progress._Bar, progress._Lines):
        monkeypatch.setattr(kind, "first", 0.05)
        monkeypatch.setattr(kind, "every", 0.05)


def test_durations():
    assert [duration(seconds) for seconds in (0.2, 59, 60, 3599, 3600)] == [
        "1 s",
        "59 s",
        "1 min 0 s",
        "59 min 59 s",
        "1 h 0 min",
    ]


def test_where_there_is_no_terminal_lines_tell_the_time_left(soon, capsys):
    with progress_bar("refining", range(4)) as bar:
        for step in bar:
            bar.set_postfix(loss="2.31", refresh=False)
            time.sleep(0.3 if step == 2 else 0)  # a line appears in the middle of a long step
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "refining: 2/4, 1 s left, loss=2.31" and lines[-1].startswith("refining: done in 1 s")
    with stage("loading"):
        time.sleep(0.15)
    assert capsys.readouterr().err.startswith("loading: 1 s\n")


def test_nothing_is_shown_if_it_is_short_or_not_wanted(capsys, soon):
    with progress_bar("refining", range(4), enabled=False) as bar:
        for _ in bar:
            time.sleep(0.06)
    with progress_bar("refining", range(4)) as bar:
        assert list(bar) == [0, 1, 2, 3]
    assert capsys.readouterr().err == ""


def test_on_a_terminal_a_bar_tells_the_time_left(soon, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with progress_bar("refining", range(4)) as bar:
        for step in bar:
            time.sleep(0.2 if step == 2 else 0)
    shown = capsys.readouterr().err
    assert "refining:  50%|" in shown and " left]" in shown and shown.endswith("\n")
