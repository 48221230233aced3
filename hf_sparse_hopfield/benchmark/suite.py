# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The whole benchmark: what is timed, and the command."""

import argparse
import dataclasses
import functools
import json
import sys
from collections.abc import Callable
from typing import Any

import torch

from ..backends.native import library
from ..environment import processor
from ..progress import progress_bar, write_line
from .bars import check_bars
from .memory_search import search_records
from .methods import method
from .peak_memory import peak_memory
from .reads import bytes_read
from .report import markdown, notes_file, plot, write_results
from .timing import keep_freed_memory, measure
from .work import Work


_WITH_MEMORY = ("sdpa", "native", "unscreened", "blocked", "eager softmax", "entmax")


def works(quick: bool = False) -> list[tuple[Work, list[str]]]:
    """The work that the benchmark times, each with the methods to compare."""
    ours, result = ["native", "unscreened", "blocked", "auto"], []
    sizes = [(1, 12, 512)] if quick else [(1, 12, 512), (4, 12, 1024), (1, 16, 2048), (1, 16, 4096)]
    for kind in ("forward", "training"):
        for batch, heads, length in sizes:
            for is_causal in (False, True):
                for alpha in (2.0, 1.5):
                    names = list(ours)
                    if length <= 1024 and alpha == 2.0:
                        names += ["eager softmax", "entmax"]
                    result.append((Work(kind, batch, heads, length, alpha, 8, is_causal), names))
        for alpha in () if quick else (2.0, 1.5):
            result.append((Work(kind, 1, 8, 16384, alpha), ["native", "unscreened"]))
        for length in (1024,) if quick else (256, 1024, 4096):
            for alpha, support in ((1.5, length // 16), (2.0, length // 4), (1.2, 0), (2.0, 0)):
                for is_causal in (True,) if quick else (False, True):
                    names = ["auto", "native", "unscreened"] + (["blocked"] if length <= 1024 else [])
                    result.append((Work(kind, 1, 8, length, alpha, support, is_causal), names))
    return result + [(work, _decode_methods(work)) for work in decodes(quick)]


def decodes(quick: bool = False) -> list[Work]:
    """The decodes among them."""
    result = []
    for length in (4096,) if quick else (256, 1024, 4096, 16384, 65536):
        settings = [(2.0, 8), (1.5, 8), (1.5, length // 16), (2.0, length // 4), (1.2, 0)]
        result += [Work("decode", 1, 32, length, alpha, support, kv_heads=8) for alpha, support in settings]
        if length >= 4096:
            result += [Work("decode", 1, 32, length, alpha, 8, kv_heads=8, dtype="bfloat16") for alpha in (2.0, 1.5)]
    return result


def _decode_methods(work: Work) -> list[str]:
    names = ["screened", "unscreened"]
    return names if work.dtype == "bfloat16" or work.support > 8 else [*names, "blocked", "auto"]


def lengths(quick: bool = False) -> list[tuple[Work, list[str]]]:
    """The work that shows the cost against the length, each with the methods to compare."""
    result = []
    for kind in ("forward", "training"):
        for length in (512, 1024, 2048) if quick else (512, 1024, 2048, 4096, 8192, 16384):
            names = ["native", "blocked"] + (["eager softmax"] if length <= 2048 else [])
            result.append((Work(kind, 1, 8, length, 2.0, 8, True), names))
    return result


def memory_works(quick: bool = False) -> list[tuple[Work, str]]:
    """The work whose peak memory is measured, each with a method."""
    names = ("sdpa", "native", "eager softmax") if quick else _WITH_MEMORY
    works = [
        Work(kind, 1, 16, 1024 if quick else 4096) for kind in (("training",) if quick else ("forward", "training"))
    ]
    return [(work, name) for work in works for name in names if method(name, work) is not None]


def instructions() -> str:
    """The instruction set that the compiled core uses."""
    return "no compiled core" if library.missing else library.level()


def limit_instructions(name: str) -> None:
    """
    Let the compiled core use an instruction set and none that is faster.

    Args:
        name (`str`): One of [`library.LEVELS`].
    """
    if name not in library.LEVELS or library.limit_level(library.LEVELS.index(name)) != name:
        raise ValueError(f"--instructions {name}: this processor has no such set; {instructions()} is in use.")


def has_vnni() -> bool:
    """Whether the compiled core multiplies bytes with instructions made for it."""
    return "VNNI" in instructions()


def _machine() -> str:
    return f"{processor()} ({instructions()}), {torch.get_num_threads()} threads, torch {torch.__version__}"


def run(
    quick: bool = False,
    seconds: float = 2.0,
    memory: bool = True,
    show: Callable[[str], None] = print,
    progress: bool = False,
) -> dict:
    """
    Run the whole benchmark.

    Args:
        quick (`bool`, *optional*, defaults to `False`): Small sizes only.
        seconds (`float`, *optional*, defaults to 2.0): Approximate time of each measurement.
        memory (`bool`, *optional*, defaults to `True`): Whether to measure memory as well.
        show (`Callable`, *optional*, defaults to `print`): Called with a line for each result.
        progress (`bool`, *optional*, defaults to `False`): Show progress, on stderr.
    """
    keep_freed_memory()
    results: dict[str, Any] = {"machine": _machine(), "records": [], "lengths": [], "memory": []}
    parts = {"records": works(quick), "lengths": lengths(quick)}
    measured = memory_works(quick) if memory else []
    with progress_bar("measuring", total=sum(map(len, parts.values())) + len(measured) + 1, enabled=progress) as bar:
        for name, todo in parts.items():
            for work, names in todo:
                found = measure(work, names, seconds)
                results[name] += found
                show(_line(work, found))
                bar.update()
        for work, name in measured:
            record = {**dataclasses.asdict(work), "method": name, "bytes": peak_memory(work, name)}
            results["memory"].append(record)
            bar.update()
        results["reads"] = [read for work in decodes(quick) if work.support == 8 and (read := bytes_read(work))]
        results["search"] = search_records(100_000 if quick else 1_000_000, seconds=5 * seconds)
        bar.update()
    results["bars"] = check_bars(results, has_vnni())
    return results


def _line(work: Work, found: list[dict]) -> str:
    figures = ", ".join(f"{r['method']} {r['ratio']:.2f}" for r in found if r["method"] != "sdpa")
    base = found[0]["seconds"] * 1e3
    return f"{work.label}, alpha {work.alpha:g}, support {work.support or 'all'}: sdpa {base:.2f} ms; {figures}"


def run_and_write(arguments: argparse.Namespace) -> int:
    """
    Run the benchmark with the arguments of the command `bench` and write the results.

    Returns:
        `int`: Number of missed promises.
    """
    if arguments.device != "cpu":
        from .gpu import suite as gpu

        return gpu.run_and_write(arguments)
    if arguments.autotune:
        raise ValueError("--autotune needs --device cuda: it measures the tiles of the kernels for GPUs.")
    out = notes_file(arguments)
    if arguments.threads is not None:
        if arguments.threads < 1:
            raise ValueError(f"--threads must be at least 1, got {arguments.threads}.")
        torch.set_num_threads(arguments.threads)
    if arguments.instructions is not None:
        limit_instructions(arguments.instructions)
    show, progress = functools.partial(write_line, file=out), not arguments.quiet
    results = run(arguments.quick, arguments.seconds, not arguments.no_memory, show, progress)
    print(file=out)
    write_results(results, arguments.output_dir, "attention", markdown(results), plot, out)
    measured = [bar for bar in results["bars"] if bar["measured"] is not None]
    for bar in measured:
        state = {True: "met   ", False: "MISSED", None: "-     "}[bar["met"]]
        print(f"{state} {bar['text']} {bar['promised']}, worst {bar['measured']:.2f} ({bar['where']})", file=out)
    if len(measured) < len(results["bars"]):
        print(f"-      {len(results['bars']) - len(measured)} more are not measured at these sizes", file=out)
    if arguments.json:
        print(json.dumps(results, indent=2))
    return sum(bar["met"] is False for bar in results["bars"])


def main(argv: list[str] | None = None) -> int:
    """The command `bench` as a script; returns 0, or 1 with `--strict` if a promise was missed."""
    from ..cli import bench
    from ..cli.main import run_script

    return run_script(bench, argv=sys.argv[1:] if argv is None else argv)
