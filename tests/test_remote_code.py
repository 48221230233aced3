# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import runpy

from hf_sparse_hopfield import SparseHopfieldConfig
from hf_sparse_hopfield.remote_code import REMOTE_CODE_FILE, auto_map, write_remote_code


def test_the_file_defines_the_class(tmp_path):
    directory = tmp_path / "new" / "checkpoint"
    for _ in range(2):
        write_remote_code(directory, "hf_sparse_hopfield", "SparseHopfieldConfig")
    assert runpy.run_path(directory / REMOTE_CODE_FILE)["SparseHopfieldConfig"] is SparseHopfieldConfig
    assert auto_map("SparseHopfieldConfig")["AutoConfig"] == f"{REMOTE_CODE_FILE[:-3]}.SparseHopfieldConfig"
