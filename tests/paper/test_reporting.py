# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The building blocks of reports: text, tables, verdicts and the t-test."""

import numpy as np
import pytest
from reporting import claims, median_range, sign, spread, table, verdict


def test_text():
    assert spread([]) == "-" and spread([0.5], digits=1, scale=100) == "50.0"
    assert median_range([1.0, 2.0, 3.0, 4.0, 5.0], 1) == "3.0 [2.0, 4.0]" and median_range([]) == "-"
    assert table(["a", "b"], [[1, "x|y"]]) == "| a | b |\n| --- | --- |\n| 1 | x\\|y |\n"
    with pytest.raises(ValueError, match="3 entries, its header 2"):
        table(["a", "b"], [[1, 2, 3]])
    text = claims([("it is so", "partly", "why | how")])
    assert "| 1 | it is so | partly |" in text and "\n1. why | how\n" in text  # explanations stand below the table
    with pytest.raises(ValueError, match="one of reproduced, partly, not, not run, got 'yes'"):
        claims([("it is so", "yes", "why")])


def test_verdict():
    assert verdict([]) == verdict([None, None]) == "not run"
    assert verdict([True, True]) == "reproduced"
    assert verdict([True, None]) == verdict([True, False]) == "partly"  # what was not run is not reproduced
    assert verdict([False, None]) == "not"


def test_sign():
    stats = pytest.importorskip("scipy.stats", reason="quantiles of t come from scipy")
    generator = np.random.default_rng(0)
    told = set()
    for shift in (-1.0, 0.0, 0.3, 1.0):
        for count in (2, 3, 10):
            differences = list(generator.normal(shift, 0.5, count))
            test = stats.ttest_1samp(differences, 0.0)
            expected = int(np.sign(test.statistic)) if test.pvalue < 0.05 else 0
            assert sign(differences) == expected
            told.add(expected)
    assert told == {-1, 0, 1}
    assert sign([1.0]) == sign([0.0, 0.0, 0.0]) == 0
    assert sign([0.5, 0.5, 0.5]) == 1
