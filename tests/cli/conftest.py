# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import contextlib
import io
import json

import pytest

from hf_sparse_hopfield.cli import main

from ..checkpoints.conftest import source  # noqa: F401


@pytest.fixture(scope="session")
def demo(tmp_path_factory):
    directory = tmp_path_factory.mktemp("demo") / "out"
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert main(["--json", "demo", "--steps", "12", "--output_dir", str(directory)]) == 0
    result = json.loads(printed.getvalue())  # and nothing else
    assert [row["memory"][:6] for row in result["digits"]] == ["sparse", "entmax", "dense,"]
    assert len(result["models"]) == 5 and result["equal_after_reloading"] is True
    return directory
