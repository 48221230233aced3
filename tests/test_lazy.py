# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import sys

import pytest

from hf_sparse_hopfield.lazy import lazy_names


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package with a lazy name from a module of its own, and one from a module beside it."""
    (tmp_path / "lazy_house" / "room").mkdir(parents=True)
    (tmp_path / "lazy_house" / "__init__.py").write_text("")
    (tmp_path / "lazy_house" / "beside.py").write_text("window = object()")
    (tmp_path / "lazy_house" / "room" / "__init__.py").write_text("")
    (tmp_path / "lazy_house" / "room" / "furniture.py").write_text("table = object()")
    monkeypatch.syspath_prepend(tmp_path)
    import lazy_house.room

    names = {"table": "furniture", "window": "..beside", "chair": "furniture"}
    lazy_house.room.__getattr__, lazy_house.room.__dir__ = lazy_names("lazy_house.room", names)
    yield lazy_house.room
    for name in [name for name in sys.modules if name.partition(".")[0] == "lazy_house"]:
        del sys.modules[name]


def test_loads_on_first_use_and_once(package):
    assert "lazy_house.room.furniture" not in sys.modules
    assert package.table is sys.modules["lazy_house.room.furniture"].table
    assert vars(package)["table"] is package.table
    assert package.window is sys.modules["lazy_house.beside"].window


def test_lists_names_before_they_are_loaded(package):
    assert {"table", "window", "chair", "__name__"} <= set(dir(package))
    assert "table" not in vars(package)


def test_unknown_names(package):
    with pytest.raises(AttributeError, match="module 'lazy_house.room' has no attribute 'bed'"):
        _ = package.bed
    with pytest.raises(AttributeError, match="chair"):  # promised, but not in its module
        _ = package.chair
