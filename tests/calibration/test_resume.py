# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import pytest

from hf_sparse_hopfield.calibration.calibration import calibrate
from hf_sparse_hopfield.calibration.resume import Record

from ..tiny_models import tiny_model
from .recording import batches_for


def test_deterministic_and_resumable(tmp_path):
    batches = batches_for("llama", 3)
    arguments = {"alpha": 1.5, "rows": 5, "refine_steps": 0, "progress": False}
    _, whole = calibrate(tiny_model("llama"), batches, **arguments)
    _, again = calibrate(tiny_model("llama"), batches, **arguments)
    assert whole.layers == again.layers
    _, other = calibrate(tiny_model("llama"), batches, seed=1, **arguments)
    assert whole.layers != other.layers

    class Interrupted:
        def __iter__(self):
            yield from batches[:2]
            raise KeyboardInterrupt

    path = tmp_path / "state"
    with pytest.raises(KeyboardInterrupt):
        calibrate(tiny_model("llama"), Interrupted(), resume_from=path, **arguments)
    _, resumed = calibrate(tiny_model("llama"), batches, resume_from=path, **arguments)
    assert resumed.layers == whole.layers
    for changed in ({"alpha": 2.0}, {"rows": 6}, {"seed": 1}, {"search_batches": 2}, {"objective": "kl"}):
        with pytest.raises(ValueError, match=rf"other arguments \(not the same: {next(iter(changed))}\)"):
            calibrate(tiny_model("llama"), batches, resume_from=path, **{**arguments, **changed})
    with pytest.raises(ValueError, match="not the same: weights"):
        calibrate(tiny_model("llama", seed=5), batches, resume_from=path, **arguments)
    with pytest.raises(ValueError, match="not the same: the first batch"):
        calibrate(tiny_model("llama"), batches[::-1], resume_from=path, **arguments)
    with pytest.raises(ValueError, match="has seen 3 batches, but there are only 1 now"):
        calibrate(tiny_model("llama"), batches[:1], resume_from=path, **arguments)
    for damage in (path.read_bytes()[:-200], b"junk", b""):
        path.write_bytes(damage)
        with pytest.raises(ValueError, match="is damaged or holds something other"):
            calibrate(tiny_model("llama"), batches, resume_from=path, **arguments)
    with pytest.raises(FileNotFoundError, match="resume_from"):
        calibrate(tiny_model("llama"), batches, resume_from=tmp_path / "no" / "state", **arguments)


@pytest.mark.parametrize("labelled", [True, False])
def test_an_interrupted_budget_goes_on_where_it_was(labelled, tmp_path, monkeypatch):
    batches = [{**batch, "labels": batch["input_ids"]} if labelled else batch for batch in batches_for("llama")]
    arguments = {"budget": 0.02, "refine_steps": 2, "progress": False}
    _, whole = calibrate(tiny_model("llama"), batches, **arguments)
    save, saved = Record.save, []

    def interrupted(self, **state):
        save(self, **state)
        saved.append(state)
        if len(state.get("bisection", {}).get("tried", [])) == 3:
            raise KeyboardInterrupt

    path = tmp_path / "state"
    monkeypatch.setattr(Record, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        calibrate(tiny_model("llama"), batches, resume_from=path, **arguments)
    saved.clear()
    monkeypatch.setattr(Record, "save", lambda self, **state: saved.append(state) or save(self, **state))
    _, resumed = calibrate(tiny_model("llama"), batches, resume_from=path, **arguments)
    assert (resumed.layers, resumed.budget) == (whole.layers, whole.budget)
    assert sum("bisection" in state for state in saved) == 2  # the fourth and the fifth


def test_an_interrupted_refinement_resumes_where_it_was(tmp_path, monkeypatch):
    arguments = {"alpha": 1.5, "refine_steps": 5, "progress": False}
    _, whole = calibrate(tiny_model("llama"), batches_for("llama"), **arguments)
    save, path, saved = Record.save, tmp_path / "state", []

    def interrupted(self, **state):
        save(self, **state)
        if len(state.get("refining", {}).get("losses", [])) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(Record, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        calibrate(tiny_model("llama"), batches_for("llama"), resume_from=path, **arguments)
    monkeypatch.setattr(Record, "save", lambda self, **state: saved.append(state) or save(self, **state))
    _, resumed = calibrate(tiny_model("llama"), batches_for("llama"), resume_from=path, **arguments)
    assert (resumed.layers, resumed.refined) == (whole.layers, whole.refined)
    assert sum("refining" in state for state in saved) == 2  # the fourth and the fifth step
    saved.clear()
    other = {**arguments, "learning_rate": 0.1}  # the search is the same, refining is not
    _, restarted = calibrate(tiny_model("llama"), batches_for("llama"), resume_from=path, **other)
    assert restarted.refined[0] == whole.refined[0] and restarted.refined[1] != whole.refined[1]
    assert sum("refining" in state for state in saved) == 5
