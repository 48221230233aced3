# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The training script for time series: its smoke run, going on from a checkpoint, what it says of bad data."""

import json

import numpy as np
import pytest

from hf_sparse_hopfield import SparseHopfieldCrossformerForPrediction


@pytest.fixture
def module(script):
    return script("time_series")


def table(directory, rows=200, **columns):
    """A file with a date, two waves and what else is asked for; arguments to train on it."""
    series = {"date": [f"2020-01-01 {i}" for i in range(rows)]}
    series |= {"a": np.sin(np.arange(rows) / 4), "b": np.cos(np.arange(rows) / 7), **columns}
    lines = [",".join(series), *(",".join(map(str, row)) for row in zip(*series.values(), strict=True))]
    path = directory / "table.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    small = (
        "hidden_size=16,intermediate_size=16,num_hidden_layers=1,num_attention_heads=2,segment_length=4,num_routers=2"
    )
    return ["--train_file", str(path), "--config_overrides", small, "--cache_dir", str(directory / "cache")] + [
        *("--output_dir", str(directory / "out"), "--do_train", "--max_steps", "1", "--disable_tqdm", "True"),
        *("--context_length", "12", "--prediction_length", "4", "--report_to", "none"),
    ]


def test_smoke(module, tmp_path):
    summary = module.main(["--smoke", "--disable_tqdm", "True", "--output_dir", str(tmp_path)])
    assert summary["quality"]["test_mse"] < 0.3  # the mean would have 1
    assert summary["support"]["share_of_keys"] < 1
    assert SparseHopfieldCrossformerForPrediction.from_pretrained(tmp_path).config.alpha == 2.0


def test_files_and_checkpoints(module, tmp_path):
    """The date is no series; the dense baseline; going on from its checkpoint, which must fit."""
    arguments = table(tmp_path)
    summary = module.main([*arguments, "--sparse_hopfield", "False", "--do_predict"])
    assert set(summary["quality"]) == {"test_mse", "test_mae"}
    config = SparseHopfieldCrossformerForPrediction.from_pretrained(tmp_path / "out").config
    assert config.attention == "softmax" and config.num_input_channels == 2 and config.context_length == 12
    pretrained = ["--model_name_or_path", str(tmp_path / "out"), "--resume_from_checkpoint", "no"]
    with pytest.raises(ValueError, match="has num_input_channels=2, but it is 1 here"):
        module.main([*arguments, *pretrained, "--series_columns", "a"])
    with pytest.raises(ValueError, match="has context_length=12, but it is 16 here"):
        module.main([*arguments, *pretrained, "--context_length", "16"])


def test_bad_data(module, no_step, tmp_path):
    arguments = table(tmp_path)
    with pytest.raises(ValueError, match="no column 'c'"):
        module.main([*arguments, "--series_columns", "a,c"])
    with pytest.raises(ValueError, match="the column 'date' must hold numbers"):
        module.main([*arguments, "--series_columns", "a,date"])
    with pytest.raises(ValueError, match="a series is one table"):
        module.main([*arguments, "--test_file", "other.csv"])
    with pytest.raises(ValueError, match="split_sizes must be three numbers"):
        module.main([*arguments, "--split_sizes", "a,b"])
    with pytest.raises(ValueError, match="the split 'validation' is too short"):
        module.main([*arguments, "--split_sizes", "190,2,8"])
    with pytest.raises(ValueError, match="hidden_size=15 must be a multiple of num_attention_heads=4"):
        module.main([*arguments, "--config_overrides", "hidden_size=15"])
    for gap in ("", "nan", "-"):
        with pytest.raises(ValueError, match="the column 'c' must hold numbers|time step 120, channel 2|row 120"):
            module.main(table(tmp_path, c=[1.0] * 120 + [gap] + [2.0] * 79))
    with pytest.raises(ValueError, match="cannot read train_file"):
        module.main([*arguments, "--train_file", str(tmp_path / "missing.csv")])


def test_a_model_keeps_the_scale_of_its_training(module, tmp_path):
    arguments = table(tmp_path)
    before = module.main([*arguments, "--do_predict"])["quality"]["test_mse"]
    scale = json.loads((tmp_path / "out" / "standardization.json").read_text(encoding="utf-8"))
    waves = np.stack([np.sin(np.arange(140) / 4), np.cos(np.arange(140) / 7)])
    assert scale["mean"] == pytest.approx(waves.mean(1)) and scale["deviation"] == pytest.approx(waves.std(1))
    options = [word for word in table(tmp_path, a=10 + np.sin(np.arange(200) / 4)) if word != "--do_train"]
    options += ["--do_predict", "--model_name_or_path", str(tmp_path / "out"), "--output_dir", str(tmp_path / "other")]
    # the series is far from those of training, and is not brought near
    place = options.index("--config_overrides")
    assert module.main(options[:place] + options[place + 2 :])["quality"]["test_mse"] > 10 * before
