# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The harness: finished cells survive a kill and do not run again, and reports come from the JSON."""

import json
import os
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import torch
from harness import Cell, ExperimentArguments, load, parse, provenance, run
from reporting import figure as new_figure
from reporting import save_figure, select, spread, table


# Each call of a cell adds a line to calls.txt. Cell 2 does not end on its first call.
SCRIPT = """
import sys, time
sys.path.insert(0, {paper!r})
from harness import Cell, ExperimentArguments, parse, run

def work(number, calls):
    with open(calls, "a") as file:
        file.write(f"{{number}}\\n")
    if number == 2 and open(calls).read().count("2") == 1:
        time.sleep(600)
    return {{"square": number * number}}

cells = {{f"n/{{i}}": Cell(work, {{"number": i}}, {{"calls": {calls!r}}}) for i in range(4)}}
run("toy", parse(ExperimentArguments), cells)
"""


def wait_for(condition, seconds=60):
    for _ in range(int(seconds / 0.05)):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError(f"the condition was not met within {seconds} s.")


def test_resume_after_kill(tmp_path):
    calls = tmp_path / "calls.txt"
    script = tmp_path / "toy.py"
    paper = str(Path(__file__).parents[2] / "examples" / "paper")
    script.write_text(SCRIPT.format(paper=paper, calls=str(calls)))
    command = [sys.executable, str(script), "--output_dir", str(tmp_path / "out")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    wait_for(lambda: calls.exists() and calls.read_text().endswith("2\n"))

    # a second worker does not wait for the cell that the first is running; it runs the others
    other = subprocess.run(
        [*command, "--only", "n/[23]"], capture_output=True, text=True, env=environment, timeout=120
    )
    assert other.returncode == 0, other.stderr
    assert calls.read_text().split() == ["0", "1", "2", "3"]
    assert load(tmp_path / "out" / "toy.json")["missing"] == ["n/2"]

    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "out" / "cells" / "toy" / "n" / "2.json").exists()
    again = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert again.returncode == 0, again.stderr
    assert calls.read_text().split() == ["0", "1", "2", "3", "2"]
    record = load(tmp_path / "out" / "toy.json")
    assert record["missing"] == [] and select(record, "square") == [0, 1, 4, 9]
    assert "4 cells done, 0 missing" in again.stdout and "toy" in again.stderr  # the progress bar


def arguments(tmp_path, *more):
    return parse(ExperimentArguments, ["--output_dir", str(tmp_path), *more])


def test_record_report_and_report_only(tmp_path):
    calls = []

    def work(model, seed):
        calls.append((model, seed))
        return {"accuracy": torch.tensor(0.5 + 0.1 * seed), "curve": np.arange(3)}

    def report(record, folder):
        made, axes = new_figure()
        axes[0, 0].plot(select(record, "curve")[0])
        save_figure(made, folder / "toy.png")
        return table(["model", "accuracy"], [["sparse", spread(select(record, "accuracy", model="sparse"))]])

    cells = {f"sparse/seed{s}": Cell(work, {"model": "sparse", "seed": s}) for s in range(3)}
    record = run("toy", arguments(tmp_path), cells, report)
    assert record == load(tmp_path / "toy.json")
    text = (tmp_path / "toy.md").read_text()
    assert "| sparse | 0.60 ± 0.10 |" in text and record["command"] in text and record["date"][:10] in text
    assert (tmp_path / "toy.png").stat().st_size > 1000
    assert record["versions"]["torch"] == version("torch")
    assert record["seconds"] >= 0 and all(entry["seconds"] >= 0 for entry in record["cells"].values())
    assert select(record, "curve")[0] == [0, 1, 2]

    # the merged record is enough: nothing runs again, and the report needs no cell files
    for file in (tmp_path / "cells").rglob("*.json"):
        file.unlink()
    (tmp_path / "toy.md").unlink()
    assert run("toy", arguments(tmp_path), cells, report)["cells"] == record["cells"]
    (tmp_path / "toy.md").unlink()
    run("toy", arguments(tmp_path, "--report_only"), cells, report)
    assert (tmp_path / "toy.md").read_text() == text
    assert len(calls) == 3
    run("toy", arguments(tmp_path, "--overwrite", "--only", "*/seed1"), cells, report)
    assert len(calls) == 4


def test_what_differs_is_refused(tmp_path):
    def cells(rate, **fixed):
        return {"a": Cell(lambda rate: {"x": rate}, {"rate": rate}, fixed=fixed)}

    run("toy", arguments(tmp_path), cells(0.1))
    with pytest.raises(ValueError, match="rate.*0.1.*0.2.*--output_dir"):
        run("toy", arguments(tmp_path), cells(0.2))
    with pytest.raises(ValueError, match="made with batch='nothing', now 4 is asked for"):
        run("toy", arguments(tmp_path), cells(0.1, batch=4))
    with pytest.raises(ValueError, match="quick=False, now True"):
        run("toy", arguments(tmp_path, "--quick"), cells(0.1))
    with pytest.raises(ValueError, match="--only='b' matches none"):
        run("toy", arguments(tmp_path, "--only", "b"), cells(0.1))
    with pytest.raises(ValueError, match="'../a'"):
        run("toy", arguments(tmp_path), {"../a": cells(0.1)["a"]})
    with pytest.raises(TypeError, match="JSON can hold, got object"):
        run("toy", arguments(tmp_path), {"c": Cell(lambda: {"x": object()}, {})})
    (tmp_path / "toy.json").write_text('{"cells": ')
    with pytest.raises(ValueError, match="toy.json is damaged"):
        run("toy", arguments(tmp_path), cells(0.1))


def test_a_failing_cell_keeps_the_others(tmp_path):
    def fail():
        raise RuntimeError("no")

    cells = {"a": Cell(lambda: {"x": 1}, {}), "b": Cell(fail, {})}
    with pytest.raises(RuntimeError, match="no"):
        run("toy", arguments(tmp_path), cells)
    assert json.loads((tmp_path / "cells" / "toy" / "a.json").read_text())["result"] == {"x": 1}


def test_max_minutes(tmp_path, capsys):
    cells = {name: Cell(lambda: time.sleep(0.1) or {}, {}) for name in "abc"}
    record = run("toy", arguments(tmp_path, "--max_minutes", "0.0001"), cells)
    assert record["missing"] == ["b", "c"] and "continues from here" in capsys.readouterr().out


@pytest.mark.parametrize("wrong", [["--seeds", "0"], ["--max_minutes", "0"], ["--data_dir", "not/there"]])
def test_wrong_arguments(wrong):
    with pytest.raises(ValueError, match=wrong[0]):
        parse(ExperimentArguments, wrong)


def test_arguments(tmp_path):
    assert arguments(tmp_path).seed_range(10) == range(10)
    assert arguments(tmp_path, "--quick").seed_range(10) == range(1)
    assert arguments(tmp_path, "--quick", "--seeds", "3").seed_range(10) == range(3)
    with pytest.raises(ValueError, match="--data_dir is needed: the folder that holds images/mnist.npz"):
        arguments(tmp_path).require_data("images/mnist.npz")
    with pytest.raises(FileNotFoundError, match="has no images/mnist.npz"):
        arguments(tmp_path, "--data_dir", str(tmp_path)).require_data("images/mnist.npz")
    with pytest.raises((SystemExit, ValueError)):
        parse(ExperimentArguments, ["--unknown", "1"])


def test_provenance_of_a_run_in_parts():
    def cell(day, **more):
        return {
            "settings": {},
            "result": {},
            "quick": False,
            "seconds": 60.0,
            "date": f"2026-01-{day}T00:00:00",
            **more,
        }

    record = {"versions": {"torch": "1"}, "missing": [], "seconds": 120.0, "command": "python toy.py --seeds 2"}
    whole = provenance({**record, "cells": {"a": cell("01"), "b": cell("01")}})
    assert "2026-01-01 by `python toy.py --seeds 2` (torch 1)" in whole
    part = {"a": cell("01"), "b": cell("03", command="python toy.py --seeds 2 --only b")}
    assert "2026-01-01 to 2026-01-03 by `python toy.py --seeds 2` in parts (`--only`)" in provenance(
        {**record, "cells": part}
    )
