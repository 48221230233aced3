# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The time series experiment: its quick version from end to end, its protocol, its verdicts."""

import os
from pathlib import Path

import pytest
import torch
from reporting import select


pytest.importorskip("matplotlib", reason="the report has pictures")

import time_series  # noqa: E402
import time_series_report  # noqa: E402


def test_quick(tmp_path):
    arguments = ["--quick", "--output_dir", str(tmp_path)]
    record = time_series.main(arguments)
    assert not record["missing"] and len(record["cells"]) == 7
    for result in [entry["result"] for entry in record["cells"].values() if "model" in entry["settings"]]:
        assert result["mse"] > 0 and result["mae"] > 0 and result["steps"] == 12
        assert result["validation_mse"] == min(validation for _, _, validation in result["curve"])
    assert select(record, "zero_share", model="Crossformer-DH") == [0, 0]
    text = (tmp_path / "time_series.md").read_text()
    assert text.startswith("## 4.") and "| waves-6 |" in text
    assert (tmp_path / "time_series.png").stat().st_size > 1000
    again = time_series.main([*arguments, "--report_only"])
    assert again["cells"] == record["cells"]


def test_linear_is_least_squares():
    """A series that goes on linearly is predicted exactly, whatever the level."""
    waves = torch.stack([torch.sin(torch.arange(600.0) / period) for period in (3, 7)], dim=1)
    result = time_series.linear("waves", 6, 24, waves)
    assert result["mse"] < 1e-3 and result["mae"] < 0.03


def test_same_seed_same_result():
    settings = time_series.COMMON | time_series.SETTINGS["waves"] | {"max_steps": 4}
    runs = [
        time_series.train("waves", 6, "Crossformer-SH", seed, **settings, values=time_series.waves())["mse"]
        for seed in (0, 0, 1)
    ]
    assert runs[0] == runs[1] != runs[2]


def fake_record(sparse, dense, softmax):
    """Three seeds of one task with these errors, each seed 0.1 above the one before."""
    cells = {}
    for model, mse in zip(time_series_report.ATTENTION, (softmax, dense, sparse), strict=True):
        for seed in range(3):
            settings = {"dataset": "ETTh1", "horizon": 24, "model": model, "seed": seed}
            wobble = 1e-4 * seed * len(model)
            cells[f"{model}{seed}"] = {"settings": settings, "result": {"mse": mse + 0.1 * seed + wobble}}
    return {"cells": cells}


def test_verdicts(monkeypatch):
    """Differences are paired by seed: what all models share of a seed does not hide them."""
    better = time_series_report.verdicts(fake_record(sparse=0.2, dense=0.3, softmax=0.2))
    # one row of ten may be chance
    assert [row[1] for row in better] == ["not", "not", "partly"]
    assert (
        "; better: ETTh1-24;" in better[0][2]
        and "no significant difference (t-test over seeds, 5 %): ETTh1-24;" in better[1][2]
    )
    worse = time_series_report.verdicts(fake_record(sparse=0.3, dense=0.2, softmax=0.2))
    assert [row[1] for row in worse] == ["not", "not", "not"]
    assert "; worse: ETTh1-24;" in worse[0][2]
    monkeypatch.setattr(time_series_report, "PAPER", {"ETTh1-24": time_series_report.PAPER["ETTh1-24"]})
    better = time_series_report.verdicts(fake_record(sparse=0.2, dense=0.3, softmax=0.2))
    assert [row[1] for row in better] == ["reproduced", "not", "reproduced"]


def test_real_data_splits():
    """Numbers of test windows as in the literature."""
    folder = Path(os.environ.get("PAPER_DATA_DIR", ""))
    if not (folder / "timeseries").is_dir():
        pytest.skip("the real data are not here (PAPER_DATA_DIR names their folder)")
    expected = {"ETTh1": (7, 2857), "ETTm1": (7, 11497), "ILI": (7, 170), "WTH": (12, 7177)}
    for dataset, (channels, count) in expected.items():
        values = time_series.read(folder / time_series.FILES[dataset])
        windows = time_series.split_series(values, time_series.SPLITS[dataset], 48, 24)
        assert values.shape[1] == channels and len(windows["test"]) == count
        train = windows["train"].windows[:, 0]
        assert torch.isfinite(train).all() and train.mean().abs() < 0.2
