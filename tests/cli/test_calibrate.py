# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
from hf_sparse_hopfield.cli import main


def test_calibration_needs_inputs(source, tmp_path, capsys):
    assert main(["calibrate", str(source), str(tmp_path / "out")]) == 1
    assert "give --text FILE or --random" in capsys.readouterr().err and not (tmp_path / "out").exists()
