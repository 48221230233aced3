# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The benchmark of a GPU, and the command."""

import argparse
import functools
import importlib.util
import json
import os
from collections.abc import Callable

import torch

from ...progress import progress_bar, write_line
from ..report import notes_file, write_results
from .autotune import VARIABLE, default_plan, tune_and_write
from .devices import TimingDevice, find_device
from .measuring import measure
from .methods import OPTIONAL
from .report import NO_PROMISES, markdown, plot
from .works import works


def run(
    device: TimingDevice,
    quick: bool = False,
    seconds: float = 2.0,
    memory: bool = True,
    show: Callable[[str], None] = print,
    results: dict | None = None,
    progress: bool = False,
) -> dict:
    """
    Run the whole benchmark of a device.

    Args:
        device ([`TimingDevice`]): The device.
        quick (`bool`, *optional*, defaults to `False`): Small sizes only.
        seconds (`float`, *optional*, defaults to 2.0): Approximate time of each measurement.
        memory (`bool`, *optional*, defaults to `True`): Whether to measure memory as well.
        show (`Callable`, *optional*, defaults to `print`): Called with a line for each result.
        results (`dict`, *optional*): Filled on the way, so that what was found is there also if an error ends the run.
        progress (`bool`, *optional*, defaults to `False`): Show progress, on stderr.

    Returns:
        `dict`: The `device`, `records`, what was `left_out`, and that there are no `bars`.
    """
    described = {**device.description(), "tiles": os.environ.get(VARIABLE) or "the table of the package"}
    results = {} if results is None else results
    results |= {"device": described, "records": [], "left_out": [], "bars": NO_PROMISES}
    absent = [name for name in OPTIONAL if importlib.util.find_spec(name) is None]
    for name in absent:
        entry = {"label": "all", "alpha": None, "inputs": "", "method": name, "reason": "the package is not installed"}
        results["left_out"].append(entry)
        show(f"{name} left out ({entry['reason']})")
    with progress_bar("measuring", works(device, quick), enabled=progress) as bar:
        for work, names in bar:
            records, left_out = measure(work, [x for x in names if x not in absent], device, seconds, memory)
            results["records"] += records
            results["left_out"] += left_out
            show(_line(work.label, work.alpha, work.inputs, records, left_out))
    return results


def _line(label: str, alpha: float, inputs: str, records: list[dict], left_out: list[dict]) -> str:
    figures = []
    for record in records:
        text = f"{record['method']} {record['seconds'] * 1e3:.3f} ms"
        if record["method"] != "sdpa" and record["ratio"] is not None:
            text += f" ({record['ratio']:.2f})"
        if record["tiles"] is not None:
            text += f", {record['tiles']:.1%} of the tiles"
        figures.append(text)
    figures += [f"{entry['method']} left out ({entry['reason']})" for entry in left_out]
    return f"{label}, alpha {alpha:g}, {inputs}: {'; '.join(figures)}"


def _check(arguments: argparse.Namespace) -> None:
    if arguments.strict:
        raise ValueError(f"--strict does not go with --device {arguments.device}: the promises are figures of CPUs.")
    if arguments.instructions is not None:
        raise ValueError(f"--instructions does not go with --device {arguments.device}: it limits the core for CPUs.")
    if arguments.threads is not None and arguments.threads < 1:
        raise ValueError(f"--threads must be at least 1, got {arguments.threads}.")


def run_and_write(arguments: argparse.Namespace) -> int:
    """
    Run the command `bench` on a GPU: measure, or with `--autotune` find tiles, and write the results.

    Returns:
        `int`: Number of missed promises, which is 0: there are none for GPUs.
    """
    _check(arguments)
    device = find_device(arguments.device)
    if arguments.threads is not None:
        torch.set_num_threads(arguments.threads)
    out = notes_file(arguments)
    show = functools.partial(write_line, file=out)
    for name, text in device.description().items():
        show(f"{name}: {text}")
    if arguments.autotune:
        plan = default_plan(device, arguments.quick, arguments.seconds)
        results = tune_and_write(device, plan, arguments.output_dir, show)
    else:
        results = {}
        try:
            run(
                device, arguments.quick, arguments.seconds, not arguments.no_memory, show, results, not arguments.quiet
            )
        finally:
            if results.get("records"):
                write_results(results, arguments.output_dir, "attention_gpu", markdown(results), plot, out)
        show(NO_PROMISES)
    if arguments.json:
        print(json.dumps(results, indent=2))
    return 0
