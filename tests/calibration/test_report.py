# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import json

import pytest

from hf_sparse_hopfield.calibration.report import CalibrationReport


def test_means_warnings_and_saving(tmp_path):
    layers = {"a": {"alpha": [1.5, 1.5], "beta": [1.0, 2.0]}, "b": {"alpha": [2.0], "beta": [3.0]}}
    report = CalibrationReport("output", batches=2, layers=layers)
    assert report.mean("beta") == 2 and report.mean("alpha") == pytest.approx(5 / 3)
    report.warn("too few keys")
    report.save(tmp_path / "calibration.json")
    saved = json.loads((tmp_path / "calibration.json").read_text())
    assert saved == report.to_dict() and saved["warnings"] == ["too few keys"] and saved["layers"] == layers
