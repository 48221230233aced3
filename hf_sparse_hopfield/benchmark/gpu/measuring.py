# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""One measurement: several methods on the same tensors, taking turns."""

import dataclasses
import functools
from collections.abc import Callable

import torch
from torch import Tensor

from ...functional import support_size
from ..methods import attend_once
from ..timing import time_in_turns
from ..work import Work
from .devices import Call, TimingDevice
from .methods import NotApplicable, method
from .tiles_visited import share_visited


def reason_of(error: BaseException) -> str:
    """The first line of an error, with its name."""
    lines = str(error).strip().splitlines()
    text = lines[0] if lines else ""
    return text if isinstance(error, NotApplicable) else f"{type(error).__name__}: {text[:300]}"


def mean_support(work: Work, tensors: tuple[Tensor, Tensor, Tensor]) -> float:
    """The mean number of keys that have weight, of the last 64 queries of the first head."""
    query, key = (tensor.detach()[0, 0].float() for tensor in tensors[:2])
    rows = query[-64:]
    scores = rows @ key.T * work.head_dim**-0.5
    if work.is_causal:
        hidden = torch.ones(scores.shape, dtype=torch.bool, device=scores.device).triu(
            1 + scores.shape[1] - scores.shape[0]
        )
        scores = scores.masked_fill(hidden, -torch.inf)
    return support_size(scores, work.alpha).float().mean().item()


def measure(
    work: Work, names: list[str], device: TimingDevice, seconds: float = 2.0, memory: bool = True
) -> tuple[list[dict], list[dict]]:
    """
    Time several methods and `sdpa` on the same tensors.

    Args:
        work ([`Work`]): What to time.
        names (`list[str]`): The methods.
        device ([`TimingDevice`]): Where.
        seconds (`float`, *optional*, defaults to 2.0): Approximate time.
        memory (`bool`, *optional*, defaults to `True`): Whether to measure peak memory as well.

    Returns:
        `tuple[list[dict], list[dict]]`:
            A record for each method: the work, its `seconds`, the `ratio` of the seconds of `sdpa` to them, `graph_seconds` and
            `graph_ratio` in a CUDA graph (decodes only), peak `bytes`, `mean_support`, and the share of `tiles` that are visited
            (`triton` only). And for each method that was left out its `label`, `method` and `reason`.
    """
    fields = {**dataclasses.asdict(work), "label": work.label}
    left_out: list[dict] = []

    def leave_out(name: str, error: Exception) -> None:
        left_out.append({**fields, "method": name, "reason": reason_of(error)})
        error.__traceback__ = None  # it holds tensors
        device.recover()

    try:
        tensors = work.tensors(device.place)
        fields["mean_support"] = mean_support(work, tensors)
    except torch.OutOfMemoryError as error:
        leave_out("all", error)
        return [], left_out
    calls: dict[str, Call] = {}
    kernels = {}
    for name in ["sdpa", *names]:
        try:
            attend, kernels[name] = method(name, work, device, tensors)
            call = functools.partial(attend_once, work, attend, tensors)
            device.seconds_of(call)  # compiles, or fails
            calls[name] = call
        except Exception as error:  # of another package or a compiler: the other methods are still compared
            leave_out(name, error)
    times = time_in_turns(calls, device.seconds_of, seconds, device.rounds)
    graph_times = _graph_times(calls, device, seconds, leave_out) if work.kind == "decode" else {}
    sizes = {name: device.peak_bytes(call) if memory else None for name, call in calls.items()}
    tiles = share_visited(work, tensors) if "triton" in calls and work.kind != "decode" else None
    records = [
        {
            **fields,
            "method": name,
            "kernels": kernels[name],
            "seconds": spent,
            "ratio": times["sdpa"] / spent if "sdpa" in times else None,
            "graph_seconds": graph_times.get(name),
            "graph_ratio": graph_times["sdpa"] / graph_times[name]
            if "sdpa" in graph_times and name in graph_times
            else None,
            "bytes": sizes[name],
            "tiles": tiles if name == "triton" else None,
        }
        for name, spent in times.items()
    ]
    return records, left_out


def _graph_times(
    calls: dict[str, Call], device: TimingDevice, seconds: float, leave_out: Callable[[str, Exception], None]
) -> dict[str, float]:
    """The times of calls in CUDA graphs, where the time to launch kernels from Python does not count."""
    graphs = {}
    for name, call in calls.items():
        try:
            graphs[name] = device.graphed(call)
        except Exception as error:
            leave_out(f"{name} in a CUDA graph", error)
    return time_in_turns(graphs, device.seconds_of, seconds, device.rounds) if graphs else {}
