# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import sys
from types import ModuleType

import pytest

from hf_sparse_hopfield.checkpoints import convert_gguf


def test_what_is_missing_is_told(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ImportError, match=r"hf-sparse-hopfield\[gguf\]"):
        convert_gguf(tmp_path / "model.gguf", tmp_path / "out")
    monkeypatch.setitem(sys.modules, "gguf", ModuleType("gguf"))
    with pytest.raises(FileNotFoundError, match="model.gguf' is not a file"):
        convert_gguf(tmp_path / "model.gguf", tmp_path / "out")
    (tmp_path / "out").mkdir()
    (tmp_path / "model.gguf").touch()
    with pytest.raises(FileExistsError, match="--overwrite"):
        convert_gguf(tmp_path / "model.gguf", tmp_path / "out")
