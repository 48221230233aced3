# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The notebooks run from the first cell to the last, show what they say, and are committed without outputs."""

import json
import re
from pathlib import Path

import pytest


FOLDER = Path(__file__).parents[2] / "examples" / "notebooks"
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))


def read(name):
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_it_is_committed_without_outputs_and_its_links_lead_somewhere(name):
    notebook = read(name)
    cells = notebook["cells"]
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells if "outputs" in cell)
    assert len({cell["id"] for cell in cells}) == len(cells)
    text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    for target in re.findall(r"\]\(([^)\s#]+)", text):
        assert (FOLDER / target).exists(), target


def executed(name, folder, monkeypatch):
    """What the code cells of a notebook print, by the id of the cell, and what kinds of things they show."""
    for package in ("nbclient", "ipykernel"):
        pytest.importorskip(package, reason=f"needs {package}: .ci/recipes installs it")
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("IPYTHONDIR", str(folder / "ipython"))
    notebook = nbformat.read(FOLDER / name, as_version=4)
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=resources).execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    printed = {
        cell.id: "".join(output.text for output in cell.outputs if output.get("name") == "stdout") for cell in cells
    }
    shown = {cell.id: {kind for output in cell.outputs for kind in output.get("data", {})} for cell in cells}
    return printed, shown


@pytest.mark.slow
def test_your_first_sparse_model(tmp_path, monkeypatch):
    printed, shown = executed("first_sparse_model.ipynb", tmp_path, monkeypatch)
    zeros = [line.count("0.000") for line in printed["weights-code"].splitlines()]
    assert zeros[0] == 0 < zeros[1] < zeros[2]
    rows = re.findall(r"loss ([\d.]+), keys used (\d+) ?%", printed["look-code"])
    (dense, all_keys), _, (close, _), (few_keys, share) = ((float(loss), int(share)) for loss, share in rows)
    assert all_keys == 100 and share < 20
    assert close < dense + 0.01 and few_keys < dense + 0.05
    assert "image/png" in shown["plot"]
    line, _, echo = printed["generate-code"].strip().partition(" → ")
    assert line.rsplit(" ", 1)[0] == f"{line.split()[-1]} {echo}"
    assert printed["save-code"].endswith("True\n") and printed["memory-code"].endswith("True\n")
    assert float(re.search(r"loss ([\d.]+)", printed["finetune-code"]).group(1)) < few_keys
    assert printed["memory-search"].startswith("digits with weight: [3]\n")


@pytest.mark.slow
def test_look_into_a_converted_model(tmp_path, monkeypatch):
    printed, shown = executed("look_into_a_converted_model.ipynb", tmp_path, monkeypatch)
    assert printed["counts-code"].count("head ") == 8 and "dead heads: none" in printed["counts-code"]
    for cell in ("counts-plot", "reads-code", "energy-code"):
        assert "image/png" in shown[cell], cell
    most = re.findall(r"^ *\S+ \( *(\d+)\) reads \S+ \((\d+)\)", printed["reads-list"], re.MULTILINE)
    assert len(most) == 8
    assert all(int(read) == int(position) - 7 for position, read in most[:-1])  # the last word ends the line
    assert printed["energy-code"].count("never rises: True") == 2
    assert printed["backend-code"].strip()
    assert "text/html" in shown["explorer-code"] and (tmp_path / "explorer.html").stat().st_size > 10_000
