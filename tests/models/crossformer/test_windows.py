# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import pytest
import torch

from hf_sparse_hopfield.models import (
    TimeSeriesWindows,
    split_lengths,
    split_series,
    standardization,
)


def test_windows():
    series = torch.arange(50.0)[:, None] * torch.tensor([1.0, 10.0])
    windows = TimeSeriesWindows(series, 6, 3)
    assert len(windows) == 42
    assert windows[5]["past_values"][:, 0].tolist() == [5, 6, 7, 8, 9, 10]
    assert windows[5]["future_values"][:, 1].tolist() == [110, 120, 130]
    assert windows[torch.tensor([0, 41])]["future_values"][:, :, 0].tolist() == [[6, 7, 8], [47, 48, 49]]
    few = TimeSeriesWindows(series, 6, 3, limit=3)
    assert [few[i]["past_values"][0, 0].item() for i in range(len(few))] == [0, 20, 41]
    with pytest.raises(ValueError, match="values has 8 time steps"):
        TimeSeriesWindows(series[:8], 6, 3)


def test_splits():
    """No future of one split is seen in another's training or scaling, and none is left out."""
    series = torch.arange(100.0)[:, None].repeat(1, 2)
    series[:, 1] = 7.0  # constant: centred, not divided
    splits = split_series(series, (0.6, 0.15, 0.25), 10, 5)
    mean, deviation = series[:60, 0].mean(), series[:60, 0].std(correction=0)
    for name, (begin, end) in {"train": (10, 60), "validation": (60, 75), "test": (75, 100)}.items():
        windows = splits[name]
        times = torch.cat([windows[i]["future_values"][:, 0] for i in range(len(windows))]) * deviation + mean
        assert times.min().round() == begin and times.max().round() == end - 1
        assert len(windows) == end - begin - 4
        assert (windows[0]["past_values"][:, 1] == 0).all()
    assert len(split_series(series, (60, 15, 25), 10, 5, (None, 4, None))["validation"]) == 4
    assert split_lengths(101, (0.6, 0.15, 0.25)) == [60, 16, 25]


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((0.6, 0.2), "three positive numbers"),
        ((0.6, 0.2, 0.3), "must add up to 1"),
        ((60, 20, 30), "need 110 time steps, but the series has 100"),
        ((60, 0.2, 20), "three whole numbers or three shares"),
        ((80, 2, 18), "the split 'validation' is too short"),
    ],
)
def test_wrong_splits(sizes, message):
    with pytest.raises(ValueError, match=message):
        split_series(torch.randn(100, 2), sizes, 10, 5)


def test_splits_take_a_given_scale():
    values = torch.randn(100, 2)
    mean, deviation = standardization(values[:70])
    own = split_series(values, (70, 10, 20), 4, 2)
    given = split_series(values, (70, 10, 20), 4, 2, scale=(mean, deviation))
    assert torch.equal(given["test"][0]["past_values"], own["test"][0]["past_values"])
    other = split_series(values, (70, 10, 20), 4, 2, scale=(mean + 1, 2 * deviation))
    torch.testing.assert_close(
        other["train"][0]["past_values"], ((values[:4] - mean - 1) / (2 * deviation)).float(), rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((-2, 5), "context_length must be an integer of at least 1, got -2"),
        ((5, 0), "prediction_length must be an integer of at least 1, got 0"),
        ((5, 5, 0), "limit must be an integer of at least 1 or None, got 0"),
    ],
)
def test_wrong_windows(arguments, message):
    with pytest.raises(ValueError, match=message):
        TimeSeriesWindows(torch.randn(50, 2), *arguments)


def test_splits_refuse_missing_values():
    series = torch.randn(100, 2)
    series[41, 1] = torch.nan
    with pytest.raises(ValueError, match="values has nan at time step 41, channel 1"):
        split_series(series, (60, 20, 20), 10, 5)
