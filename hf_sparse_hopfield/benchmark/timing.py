# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Medians of calls that take turns, so that other load on the machine affects all alike."""

import ctypes
import dataclasses
import functools
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from ..retrieval import explain_backend
from .methods import attend_once, method
from .work import Work


Thing = TypeVar("Thing")


def seconds_of(call: Callable[[], object]) -> float:
    """The time of a call on this machine's clock, in seconds."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def time_interleaved(
    calls: Mapping[str, Callable[[], object]], seconds: float = 3.0, most: int = 200
) -> dict[str, float]:
    """
    Median time of each of several calls that take turns, on this machine's clock.

    Args:
        calls (`Mapping`): The calls to time.
        seconds (`float`, *optional*, defaults to 3.0): Approximate total time.
        most (`int`, *optional*, defaults to 200): Maximum number of rounds.
    """
    return time_in_turns(calls, seconds_of, seconds, most)


def time_in_turns(
    things: Mapping[str, Thing], clock: Callable[[Thing], float], seconds: float = 3.0, most: int = 200
) -> dict[str, float]:
    """
    Median time of each of several things that take turns. The order changes, because some of them leave the next one a
    cold cache. There are at least nine rounds, so that two disturbed rounds do not show, but only three for what
    takes a third of `seconds` or more.

    Args:
        things (`Mapping`): What to time.
        clock (`Callable`): Runs one of the things and says how many seconds it took.
        seconds (`float`, *optional*, defaults to 3.0): Approximate total time.
        most (`int`, *optional*, defaults to 200): Maximum number of rounds.
    """
    times: dict[str, list[float]] = {name: [] for name in things}
    for thing in things.values():
        clock(thing)
    order, shuffle = list(things), random.Random(0).shuffle
    end = time.perf_counter() + seconds
    for number in range(most):
        shuffle(order)
        for name in order:
            if number >= 3 and min(times[name]) > seconds / 3:
                continue
            times[name].append(clock(things[name]))
        if number >= 8 and time.perf_counter() > end:
            break
    return {name: statistics.median(values) for name, values in times.items()}


def keep_freed_memory() -> None:
    """
    Make this process keep the memory it frees, if the C library is glibc.

    Eager softmax and entmax free tens of megabytes after a call, which glibc returns to the system. The next method
    would have to get its pages again, which takes up to half of the time of a short call.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        trim_threshold, most_mappings = -1, -4  # from malloc.h
        mallopt(trim_threshold, 2**31 - 1)
        mallopt(most_mappings, 0)


def measure(work: Work, names: list[str], seconds: float = 3.0) -> list[dict]:
    """
    Time several methods on the same tensors.

    Returns:
        `list[dict]`: One record per method: the work, the method, its seconds, and the time of `sdpa` divided by its
        own.
    """
    tensors = work.tensors()
    attentions = {name: method(name, work) for name in ["sdpa", *names]}
    calls = {name: functools.partial(attend_once, work, a, tensors) for name, a in attentions.items() if a is not None}
    times = time_interleaved(calls, seconds)
    chosen = explain_backend(*tensors, alpha=work.alpha, is_causal=work.is_causal).partition(":")[0]
    return [
        {
            **dataclasses.asdict(work),
            "label": work.label,
            "method": name,
            "backend": chosen if name == "auto" else name,
            "seconds": spent,
            "ratio": times["sdpa"] / spent,
        }
        for name, spent in times.items()
    ]
