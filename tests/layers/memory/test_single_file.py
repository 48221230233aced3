# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""A memory in one file."""

import os
import stat
import struct

import pytest
import torch
from safetensors.torch import save_file

from hf_sparse_hopfield import HopfieldMemory


def test_save_and_load(tmp_path):
    path = tmp_path / "memory.safetensors"
    memory = HopfieldMemory(torch.randn(5, 4, dtype=torch.float16), alpha=1.3, beta=0.1 + 0.2, normalize=True)
    memory.save(path)
    again = HopfieldMemory.load(path)
    assert torch.equal(again.patterns, memory.patterns)
    assert again.patterns.dtype == torch.float16
    assert (again.alpha, again.beta, again.normalize) == (1.3, 0.1 + 0.2, True)
    memory.remove(0)
    memory.save(str(path))
    assert len(HopfieldMemory.load(str(path))) == 4
    assert os.listdir(tmp_path) == ["memory.safetensors"]
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask


def test_empty_memory_can_be_saved(tmp_path):
    HopfieldMemory(torch.empty(0, 3)).save(tmp_path / "empty.safetensors")
    assert HopfieldMemory.load(tmp_path / "empty.safetensors").patterns.shape == (0, 3)


def test_saving_is_atomic(tmp_path, monkeypatch):
    path = tmp_path / "memory.safetensors"
    HopfieldMemory(torch.ones(1, 2)).save(path)

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        HopfieldMemory(torch.zeros(3, 2)).save(path)
    monkeypatch.undo()
    assert os.listdir(tmp_path) == ["memory.safetensors"]
    assert torch.equal(HopfieldMemory.load(path).patterns, torch.ones(1, 2))


def metadata(**changes):
    values = {
        "format": "hf_sparse_hopfield.HopfieldMemory",
        "version": "1",
        "alpha": "2.0",
        "beta": "1.0",
        "normalize": "False",
    }
    return {name: value for name, value in {**values, **changes}.items() if value is not None}


@pytest.mark.parametrize(
    ("tensors", "header", "message"),
    [
        ({"patterns": torch.ones(2, 3)}, None, "is not a HopfieldMemory"),
        ({"patterns": torch.ones(2, 3)}, {"format": "pt"}, "is not a HopfieldMemory"),
        ({"patterns": torch.ones(2, 3)}, metadata(version="99"), "version '99'"),
        ({"patterns": torch.ones(2, 3)}, metadata(alpha=None), "damaged metadata"),
        ({"patterns": torch.ones(2, 3)}, metadata(beta="high"), "damaged metadata"),
        ({"patterns": torch.ones(2, 3)}, metadata(normalize="1"), "damaged metadata"),
        ({"patterns": torch.ones(2, 3)}, metadata(alpha="3.0"), "alpha"),
        ({"patterns": torch.ones(3)}, metadata(), "damaged: patterns must have shape"),
        ({"patterns": torch.ones(2, 3).long()}, metadata(), "damaged: patterns must be a floating"),
        ({"patterns": torch.full((2, 3), torch.nan)}, metadata(), "damaged: patterns must be finite"),
        ({"other": torch.ones(2, 3)}, metadata(), "damaged"),
    ],
)
def test_foreign_files_are_refused(tmp_path, tensors, header, message):
    save_file(tensors, tmp_path / "file", metadata=header)
    with pytest.raises(ValueError, match=message):
        HopfieldMemory.load(tmp_path / "file")


def test_damaged_files_are_refused(tmp_path):
    path = tmp_path / "memory.safetensors"
    HopfieldMemory(torch.randn(5, 4)).save(path)
    content = path.read_bytes()
    for damaged in (b"", content[:5], content[:-7], b"text, not tensors", struct.pack("<Q", 1 << 40) + content[8:]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="damaged or not a safetensors file"):
            HopfieldMemory.load(path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        HopfieldMemory.load(tmp_path / "nowhere")


def test_files_of_earlier_versions_have_no_rows(tmp_path):
    patterns = torch.randn(5, 4)
    save_file({"patterns": patterns}, tmp_path / "old", metadata=metadata(beta="3.0"))
    memory = HopfieldMemory.load(tmp_path / "old")
    assert torch.equal(memory.patterns, patterns) and memory.rows.tolist() == [0, 1, 2, 3, 4] and memory.beta == 3.0


def test_rows_are_saved(tmp_path):
    memory = HopfieldMemory(torch.randn(5, 4))
    memory.remove([1, 3])
    memory.save(tmp_path / "memory.safetensors")
    again = HopfieldMemory.load(tmp_path / "memory.safetensors")
    assert again.rows.tolist() == [0, 2, 4]
    assert again.add(torch.randn(2, 4)) == range(3, 5) and again.rows.tolist() == [0, 2, 4, 5, 6]
