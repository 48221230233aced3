# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import statistics

import numpy as np
import pytest

from hf_sparse_hopfield.comparison.estimates import Estimate, computations, jackknife


def mean(values):
    return {"mean": statistics.fmean(values)}


def test_of_a_mean_it_is_the_usual_standard_error():
    values = np.random.default_rng(0).normal(size=90).tolist()
    found = jackknife(mean, values)["mean"]
    assert found == pytest.approx((statistics.fmean(values), statistics.stdev(values) / 90**0.5))


def test_many_samples_are_left_out_in_groups():
    calls = []

    def counted(values):
        calls.append(len(values))
        return mean(values)

    values = np.random.default_rng(0).normal(size=5000).tolist()
    found = jackknife(counted, values)["mean"]
    assert len(calls) == 101 == computations(5000) and set(calls[1:]) == {4950}
    assert [computations(samples) for samples in (1, 2, 7)] == [1, 3, 8]
    assert found.standard_error == pytest.approx(statistics.stdev(values) / 5000**0.5, rel=0.25)


def test_one_sample_has_no_standard_error():
    assert jackknife(mean, [2.0]) == {"mean": Estimate(2.0, None)}


def test_pairs_share_their_noise():
    draw = np.random.default_rng(0)
    noise = draw.normal(size=50)
    pairs = list(zip(noise, noise + 0.1 + 0.01 * draw.normal(size=50), strict=True))
    found = jackknife(lambda some: {"difference": statistics.fmean(b - a for a, b in some)}, pairs)["difference"]
    assert found.standard_error < 0.002 < 0.09 < found.value
