# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Times are medians of calls that take turns."""

import time

from hf_sparse_hopfield.benchmark import time_interleaved
from hf_sparse_hopfield.benchmark.timing import time_in_turns


def test_times_are_medians_in_turns():
    order = []
    times = time_interleaved({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, 1e-3)
    assert order[:2] == ["a", "b"]  # once each before anything is timed
    rounds = [tuple(order[i : i + 2]) for i in range(2, len(order), 2)]
    assert len(rounds) >= 9 and all(set(names) == {"a", "b"} for names in rounds)
    assert len(set(rounds)) == 2  # neither always comes after the other
    assert set(times) == {"a", "b"}
    assert all(t >= 0 for t in times.values())


def test_slow_calls_are_taken_three_times():
    calls = []

    def slow():
        calls.append("slow")
        time.sleep(0.02)

    time_interleaved({"slow": slow, "fast": lambda: calls.append("fast")}, 0.02)
    assert calls.count("slow") == 1 + 3 and calls.count("fast") >= 1 + 9


def test_another_clock_times_things_that_are_not_calls():
    seen = []
    times = time_in_turns({"slow": 2, "fast": 1}, lambda thing: seen.append(thing) or float(thing), 0.0, most=4)
    assert times == {"slow": 2.0, "fast": 1.0}
    assert seen[:2] == [2, 1] and len(seen) == 2 + 3 + 3  # each takes a third of no time: three rounds
