# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The package as a whole: its names and its imports."""

import subprocess
import sys

from hf_sparse_hopfield import functional, retrieval


def test_does_not_import_the_backends():
    code = (
        "import sys\n"
        "sys.modules['hf_sparse_hopfield'] = package = type(sys)('hf_sparse_hopfield')\n"
        f"package.__path__ = {[str(path) for path in sys.modules['hf_sparse_hopfield'].__path__]}\n"
        "import hf_sparse_hopfield.functional\n"
        "print(*(name for name in sys.modules if name.startswith('hf_sparse_hopfield')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "hf_sparse_hopfield.functional.energy" in done.stdout.split()
    assert not any(name.split(".")[1:2] in (["backends"], ["retrieval"]) for name in done.stdout.split())


def test_retrieve_is_still_found_here():
    assert functional.retrieve is retrieval.retrieve
    assert functional.explain_backend is retrieval.explain_backend
