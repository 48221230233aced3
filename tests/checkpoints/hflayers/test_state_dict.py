# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import pickle

import pytest
import torch
from safetensors.torch import load_file, save_file

from conversion import convert_hflayers
from hf_sparse_hopfield import SparseHopfield
from hf_sparse_hopfield.checkpoints.hflayers.state_dict import read_state_dict
from hf_sparse_hopfield.cli import run_script

from ...layers.formula import scramble


def test_foreign_pickles_run_no_code(tmp_path, capsys):
    class Evil:
        def __reduce__(self):
            return (print, ("run",))

    (tmp_path / "evil.pt").write_bytes(pickle.dumps({"x": Evil()}, protocol=2))
    with pytest.raises(ValueError, match="more than tensors"):
        read_state_dict(str(tmp_path / "evil.pt"))
    assert run_script(convert_hflayers, argv=[str(tmp_path / "evil.pt"), str(tmp_path / "new")]) == 1
    printed = capsys.readouterr()
    assert "run\n" not in printed.out and "Traceback" not in printed.err


@pytest.mark.parametrize("form", ["zip", "old", "safetensors", "tied"])
def test_every_form_of_file(form, tmp_path):
    layer = SparseHopfield(12, alpha=1.0)
    scramble(layer)
    state = layer.state_dict()
    if form == "tied":
        state["other.weight"] = state["association_core.out_proj.weight"]
    path = tmp_path / ("old.safetensors" if form == "safetensors" else "old.pt")
    if form == "safetensors":
        save_file(state, path)
    else:
        torch.save(state, path, _use_new_zipfile_serialization=form != "old")
    assert run_script(convert_hflayers, argv=[str(path), str(tmp_path / "new")]) == 0
    written = load_file(tmp_path / "new" / "model.safetensors")
    assert all(torch.equal(written[name], value) for name, value in state.items())


def test_not_hflayers(tmp_path, capsys):
    torch.save({"weight": torch.ones(2)}, tmp_path / "other.pt")
    assert run_script(convert_hflayers, argv=[str(tmp_path / "other.pt"), str(tmp_path / "new")]) == 1
    assert "association_core" in capsys.readouterr().err
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(ValueError, match="not a state dict"):
        read_state_dict(str(tmp_path / "list.pt"))
