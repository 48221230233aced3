# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The speed of retrieval compared with dense attention: `hf-sparse-hopfield bench`.

Times are medians of runs that alternate between the methods, so that other load on the machine affects all alike. Peak
memory is measured in a fresh process for each method. The results are written as JSON, as a Markdown table and as a
plot. For every figure that the project promises, the benchmark prints whether this machine met it.
"""

import argparse
import ctypes
import dataclasses
import functools
import importlib.util
import json
import math
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F

from .extras import require
from .functional import support_size
from .retrieval import explain_backend, retrieve


_MEMORY_OF = "--memory-of"  # tells a fresh process what to measure
Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Work:
    """
    A retrieval to time.

    Args:
        kind (`str`): `"forward"`, `"training"` (forward and backward) or `"decode"` (one query per head).
        batch, heads, kv_heads, length, head_dim (`int`): Shapes; `length` is the number of keys.
        alpha (`float`): Member of the entmax family.
        support (`int`): Mean size of the support of a row; 0 means all keys (all scores nearly equal).
        is_causal (`bool`): Whether queries see only earlier keys.
    """

    kind: str
    batch: int
    heads: int
    length: int
    alpha: float = 2.0
    support: int = 8
    is_causal: bool = False
    kv_heads: int = 0
    head_dim: int = 64

    @property
    def label(self) -> str:
        """Short name for tables."""
        heads = f"{self.heads}/{self.kv_heads}" if self.kv_heads else f"{self.heads}"
        shape = f"{self.batch}, {heads}, {self.length}, {self.head_dim}"
        return f"{self.kind} {shape}{' causal' if self.is_causal else ''}"

    def tensors(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Query, key and value with standard normal entries, with the query scaled to give the wanted support."""
        generator = torch.Generator().manual_seed(0)
        queries = 1 if self.kind == "decode" else self.length
        kv_heads = self.kv_heads or self.heads
        query = torch.randn(self.batch, self.heads, queries, self.head_dim, generator=generator)
        key, value = torch.randn(2, self.batch, kv_heads, self.length, self.head_dim, generator=generator).unbind()
        query *= sharpness_for(self.support, self.length, self.alpha)
        for tensor in (query, key, value):
            tensor.requires_grad_(self.kind == "training")
        return query, key, value


@functools.cache
def sharpness_for(support: int, keys: int, alpha: float) -> float:
    """
    Standard deviation of normal scores whose rows have a mean support of about `support`.

    Args:
        support (`int`): Wanted mean size; 0 means all keys.
        keys (`int`): Length of a row.
        alpha (`float`): Member of the entmax family.

    Example:

    ```python
    >>> from hf_sparse_hopfield.benchmark import sharpness_for

    >>> sharpness_for(4, 1024, 2.0) > sharpness_for(16, 1024, 2.0)
    True
    ```
    """
    if support == 0:
        return 1e-4
    # Hardly any row has twice the mean support, and only the scores of its support matter to a row.
    scores = torch.randn(32, keys, generator=torch.Generator().manual_seed(1)).topk(min(keys, 8 * support + 64)).values
    low, high = 1e-4, 1e3
    for _ in range(16):
        middle = math.sqrt(low * high)
        if support_size(scores * middle, alpha).float().mean() > support:
            low = middle
        else:
            high = middle
    return math.sqrt(low * high)


def _grouped(work: Work, tensor: torch.Tensor) -> torch.Tensor:
    return tensor.repeat_interleave(work.heads // work.kv_heads, 1) if work.kv_heads else tensor


def _eager(work: Work, normalize: Callable[[torch.Tensor], torch.Tensor]) -> Attention:
    """Textbook attention: all scores at once."""

    def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        scores = query @ _grouped(work, key).transpose(-1, -2) * work.head_dim**-0.5
        if work.is_causal:
            hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1 + scores.shape[-1] - scores.shape[-2])
            scores = scores.masked_fill(hidden, -torch.inf)
        return normalize(scores) @ _grouped(work, value)

    return attend


def _sdpa(work: Work) -> Attention:
    causal = work.is_causal and work.kind != "decode"
    return functools.partial(F.scaled_dot_product_attention, is_causal=causal, enable_gqa=bool(work.kv_heads))


def _entmax(work: Work) -> Attention:
    from entmax import entmax15, entmax_bisect, sparsemax  # type: ignore[import-untyped]

    normalize = {2.0: sparsemax, 1.5: entmax15}.get(work.alpha) or functools.partial(entmax_bisect, alpha=work.alpha)
    return _eager(work, functools.partial(normalize, dim=-1))


def method(name: str, work: Work) -> Attention | None:
    """
    The attention called `name`, configured for `work`.

    Args:
        name (`str`): `"sdpa"`, `"eager softmax"`, `"entmax"`, `"auto"` or one of our backends.
        work (`Work`): The retrieval to time.

    Returns:
        `Callable`, or `None` if the method is not installed or does not apply.
    """
    if name == "sdpa":
        return _sdpa(work)
    if name == "eager softmax":
        return _eager(work, functools.partial(torch.softmax, dim=-1))
    if name == "entmax":
        return _entmax(work) if importlib.util.find_spec("entmax") else None
    options: dict[str, Any] = {"alpha": work.alpha, "is_causal": work.is_causal, "backend": name}
    try:
        explain_backend(*dataclasses.replace(work, length=16, support=0).tensors(), **options)
    except ValueError:  # the backend refuses this work
        return None
    return cast(Attention, functools.partial(retrieve, **options))


def _call(work: Work, attend: Attention, tensors: tuple[torch.Tensor, ...]) -> None:
    if work.kind == "training":
        output = attend(*tensors)
        torch.autograd.grad(output, tensors, torch.ones_like(output))
    else:
        with torch.no_grad():
            attend(*tensors)


def time_interleaved(
    calls: Mapping[str, Callable[[], object]], seconds: float = 3.0, most: int = 200
) -> dict[str, float]:
    """
    Median time of each of several calls that take turns. The order changes, because some calls leave the next one a
    cold cache. There are at least nine rounds, so that two disturbed rounds do not show, but only three for a call
    that takes a third of `seconds` or more.

    Args:
        calls (`Mapping`): The calls to time.
        seconds (`float`, *optional*, defaults to 3.0): Approximate total time.
        most (`int`, *optional*, defaults to 200): Maximum number of rounds.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    order, shuffle = list(calls), random.Random(0).shuffle
    end = time.perf_counter() + seconds
    for number in range(most):
        shuffle(order)
        for name in order:
            if number >= 3 and min(times[name]) > seconds / 3:
                continue
            start = time.perf_counter()
            calls[name]()
            times[name].append(time.perf_counter() - start)
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
    calls = {name: functools.partial(_call, work, a, tensors) for name, a in attentions.items() if a is not None}
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


def _resident(field: str) -> int:
    """`VmRSS` or `VmHWM` of this process in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}")


def peak_memory_here(work: Work, name: str) -> int:
    """Peak memory of this process in bytes, beyond its input tensors. Call it in a fresh process on Linux."""
    # Libraries and threads initialize on first use, which is not to be measured.
    small = dataclasses.replace(work, length=256, batch=1, heads=2, kv_heads=0)
    attend, attend_small = method(name, work), method(name, small)
    if attend is None or attend_small is None:
        raise ValueError(f"method {name!r} is not installed or does not apply to {work.label}.")
    _call(small, attend_small, small.tensors())
    tensors = work.tensors()
    before = _resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    _call(work, attend, tensors)
    return max(0, _resident("VmHWM") - before)


def peak_memory(work: Work, name: str) -> int | None:
    """
    Peak extra memory of a method in bytes, measured in a separate process.

    Returns:
        `int`, or `None` if the system does not report it (anything but Linux).
    """
    arguments = [_MEMORY_OF, json.dumps([dataclasses.asdict(work), name, torch.get_num_threads()])]
    result = subprocess.run([sys.executable, "-m", __name__, *arguments], capture_output=True, text=True)
    return int(result.stdout) if result.returncode == 0 else None


@dataclass(frozen=True)
class Bar:
    """A promise: the worst `ratio` among the records that match is at least `least`."""

    text: str
    method: str
    kind: str
    least: float
    alphas: tuple[float, ...]
    lengths: tuple[int, int]
    supports: tuple[int, int] = (1, 16)
    against: str = "sdpa"

    def worst(self, records: list[dict]) -> tuple[float, str] | None:
        """The smallest ratio and where it occurred; `None` if nothing matches."""
        seconds = {((r["label"], r["alpha"], r["support"]), r["method"]): r["seconds"] for r in records}
        found = []
        for record in records:
            place = (record["label"], record["alpha"], record["support"])
            if (
                record["method"] == self.method
                and record["kind"] == self.kind
                and record["alpha"] in self.alphas
                and self.lengths[0] <= record["length"] <= self.lengths[1]
                and self.supports[0] <= record["support"] <= self.supports[1]
                and (place, self.against) in seconds
            ):
                where = f"{record['label']}, alpha {record['alpha']}, support {record['support'] or 'all'}"
                found.append((seconds[place, self.against] / record["seconds"], where))
        return min(found, default=None)


def _bars() -> list[Bar]:
    bars = []
    for backend, alpha, lengths, least in (
        ("native", 2.0, (512, 512), {"forward": 1.3, "training": 3.0}),
        ("native", 2.0, (1024, 4096), {"forward": 1.5, "training": 3.5, "decode": 3.0}),
        ("native", 1.5, (1024, 4096), {"forward": 1.2, "training": 2.8, "decode": 2.5}),
        ("blocked", 2.0, (1024, 4096), {"forward": 0.5, "training": 1.0, "decode": 1.2}),
    ):
        span = f"{lengths[0]}" if lengths[0] == lengths[1] else f"{lengths[0]}-{lengths[1]}"
        for kind, ratio in least.items():
            keys = (4096, 2**20) if kind == "decode" else lengths
            span_ = "4096 keys and more" if kind == "decode" else span
            bars.append(Bar(f"{backend}, alpha {alpha}, {span_}, {kind}", backend, kind, ratio, (alpha,), keys))
    every = (1.2, 1.5, 2.0)
    for kind, ratio in {"forward": 0.5, "training": 0.6, "decode": 0.8}.items():
        text = f"auto, any density, 256-4096, {kind}"
        bars.append(Bar(text, "auto", kind, ratio, every, (256, 4096), (0, 2**20)))
    for kind in ("forward", "training"):
        text = f"auto against entmax eager, 1024, {kind}"
        bars.append(Bar(text, "auto", kind, 25.0, every, (1024, 1024), against="entmax"))
    return bars


def works(quick: bool = False) -> list[tuple[Work, list[str]]]:
    """The work that the benchmark times, each with the methods to compare."""
    ours, result = ["native", "blocked", "auto"], []
    sizes = [(1, 12, 512), (4, 12, 1024), (1, 16, 2048), (1, 16, 4096)]
    for kind in ("forward", "training"):
        for batch, heads, length in sizes[:2] if quick else sizes:
            for is_causal in (False, True):
                for alpha in (2.0, 1.5):
                    names = list(ours)
                    if length <= 1024 and alpha == 2.0:
                        names += ["eager softmax", "entmax"]
                    result.append((Work(kind, batch, heads, length, alpha, 8, is_causal), names))
        for length in (256, 1024) if quick else (256, 1024, 4096):
            for alpha, support in ((1.5, length // 16), (2.0, length // 4), (1.2, 0), (2.0, 0)):
                for is_causal in (False, True):
                    names = ["auto", "blocked"] if length <= 1024 else ["auto"]
                    result.append((Work(kind, 1, 8, length, alpha, support, is_causal), names))
    for length in (4096,) if quick else (256, 1024, 4096, 16384, 65536):
        for alpha, support in ((2.0, 8), (1.5, 8), (1.2, 0)):
            result.append((Work("decode", 1, 32, length, alpha, support, kv_heads=8), ours))
    return result


def lengths(quick: bool = False) -> list[tuple[Work, list[str]]]:
    """The work that shows the cost against the length, each with the methods to compare."""
    result = []
    for kind in ("forward", "training"):
        for length in (512, 1024, 2048) if quick else (512, 1024, 2048, 4096, 8192, 16384):
            names = ["native", "blocked"] + (["eager softmax"] if length <= 2048 else [])
            result.append((Work(kind, 1, 8, length, 2.0, 8, True), names))
    return result


def memory_records(quick: bool = False) -> list[dict]:
    """Peak extra memory of each method."""
    records = []
    for kind in ("forward", "training"):
        work = Work(kind, 1, 16, 1024 if quick else 4096)
        for name in ("sdpa", "native", "blocked", "eager softmax", "entmax"):
            if method(name, work) is not None:
                records.append({**dataclasses.asdict(work), "method": name, "bytes": peak_memory(work, name)})
    return records


def check_bars(records: list[dict], memory: list[dict]) -> list[dict]:
    """
    Compare the results with the promises.

    Returns:
        `list[dict]`: One entry per promise: `text`, `promised`, `measured` (`None`: not measured), `met` and `where`.
    """
    outcome = []
    for bar in _bars():
        worst = bar.worst(records)
        outcome.append(
            {
                "text": bar.text,
                "promised": f">= {bar.least:g}",
                "measured": None if worst is None else worst[0],
                "met": None if worst is None else worst[0] >= bar.least,
                "where": "" if worst is None else worst[1],
            }
        )
    size = {(r["kind"], r["method"]): r["bytes"] for r in memory if r["bytes"]}
    for kind, most in (("forward", 2.5), ("training", 1.3)):
        for name in ("native", "blocked"):
            dense, sparse = size.get((kind, "sdpa")), size.get((kind, name))
            ratio = where = None
            if dense and sparse:
                ratio, where = sparse / dense, f"{sparse / 2**20:.0f} MB against {dense / 2**20:.0f} MB"
            outcome.append(
                {
                    "text": f"{name}, peak extra memory, {kind}, against sdpa",
                    "promised": f"<= {most:g}",
                    "measured": ratio,
                    "met": None if ratio is None else ratio <= most,
                    "where": where or "",
                }
            )
    return outcome


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def markdown(results: dict) -> str:
    """The results as Markdown: speed, memory, cost against length, promises."""
    names = ["native", "blocked", "auto", "eager softmax", "entmax"]
    grouped: dict[tuple, dict[str, dict]] = {}
    for record in results["records"]:
        place = (record["label"], record["alpha"], record["support"])
        grouped.setdefault(place, {})[record["method"]] = record
    rows = []
    for (label, alpha, support), by_name in grouped.items():
        row = [label, f"{alpha:g}", str(support or "all"), f"{by_name['sdpa']['seconds'] * 1e3:.2f}"]
        rows.append(row + [f"{by_name[name]['ratio']:.2f}" if name in by_name else "" for name in names])
    parts = [
        f"Machine: {results['machine']}. Figures are the time of torch's SDPA divided by ours: above 1 is faster than dense.",
        _table(["work (batch, heads, length, head dim)", "alpha", "support", "SDPA ms", *names], rows),
    ]
    if results["memory"]:
        rows = [
            [r["kind"], str(r["length"]), r["method"], "?" if r["bytes"] is None else f"{r['bytes'] / 2**20:.0f}"]
            for r in results["memory"]
        ]
        parts.append(_table(["peak extra memory", "length", "method", "MB"], rows))
    rows = [
        [
            bar["text"],
            bar["promised"],
            "" if bar["measured"] is None else f"{bar['measured']:.2f}",
            {True: "met", False: "**missed**", None: "not measured"}[bar["met"]],
            bar["where"],
        ]
        for bar in results["bars"]
    ]
    parts.append(_table(["target", "bound", "worst measured", "result", "where"], rows))
    return "\n\n".join(parts) + "\n"


def plot(results: dict, path: Path) -> None:
    """Draw cost against length, and the ratio against the size of the support."""
    pyplot = require("matplotlib.pyplot", "cli")
    figure, axes = pyplot.subplots(1, 3, figsize=(15, 4.5))
    for axis, kind in zip(axes, ("forward", "training"), strict=False):
        by_name: dict[str, list[tuple[int, float]]] = {}
        for record in results["lengths"]:
            if record["kind"] == kind:
                by_name.setdefault(record["method"], []).append((record["length"], record["seconds"] * 1e3))
        for name, points in by_name.items():
            axis.loglog(*zip(*sorted(points), strict=True), marker="o", label=name)
        axis.set(title=f"{kind}, causal, alpha 2", xlabel="length", ylabel="ms")
        if by_name:
            axis.legend()
    for kind in ("forward", "training"):
        points = [
            ((record["support"] or record["length"]) / record["length"], record["ratio"])
            for record in results["records"]
            if record["method"] == "auto" and record["kind"] == kind
        ]
        if points:
            axes[2].semilogx(*zip(*sorted(points), strict=True), "o", label=kind)
    axes[2].axhline(1, color="gray", linewidth=0.8)
    axes[2].set(title="auto: SDPA time / ours", xlabel="support / keys", ylabel="ratio")
    axes[2].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _machine() -> str:
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        name = next(
            (x.split(":")[1].strip() for x in info.read_text().splitlines() if x.startswith("model name")), name
        )
    return f"{name}, {torch.get_num_threads()} threads, torch {torch.__version__}, float32"


def run(quick: bool = False, seconds: float = 2.0, memory: bool = True, show: Callable[[str], None] = print) -> dict:
    """
    Run the whole benchmark.

    Args:
        quick (`bool`, *optional*, defaults to `False`): Small sizes only.
        seconds (`float`, *optional*, defaults to 2.0): Approximate time of each measurement.
        memory (`bool`, *optional*, defaults to `True`): Whether to measure memory as well.
        show (`Callable`, *optional*, defaults to `print`): Called with a line for each result.
    """
    keep_freed_memory()
    results: dict[str, Any] = {"machine": _machine(), "records": [], "lengths": []}
    for name, todo in (("records", works(quick)), ("lengths", lengths(quick))):
        for work, names in todo:
            found = measure(work, names, seconds)
            results[name] += found
            figures = ", ".join(f"{r['method']} {r['ratio']:.2f}" for r in found if r["method"] != "sdpa")
            base = found[0]["seconds"] * 1e3
            show(f"{work.label}, alpha {work.alpha:g}, support {work.support or 'all'}: sdpa {base:.2f} ms; {figures}")
    results["memory"] = memory_records(quick) if memory else []
    results["bars"] = check_bars(results["records"], results["memory"])
    return results


def run_and_write(arguments: argparse.Namespace) -> int:
    """
    Run the benchmark with the arguments of the command `bench` and write the results.

    Returns:
        `int`: Number of missed promises.
    """
    # with --json, stdout is reserved for the results
    out = sys.stderr if arguments.json else sys.stdout
    if arguments.threads is not None:
        if arguments.threads < 1:
            raise ValueError(f"--threads must be at least 1, got {arguments.threads}.")
        torch.set_num_threads(arguments.threads)
    results = run(arguments.quick, arguments.seconds, not arguments.no_memory, show=functools.partial(print, file=out))
    arguments.output.mkdir(parents=True, exist_ok=True)
    (arguments.output / "attention.json").write_text(json.dumps(results, indent=1))
    (arguments.output / "attention.md").write_text(markdown(results))
    try:
        plot(results, arguments.output / "attention.png")
    except ImportError as error:
        print(f"no plot: {error}", file=out)
    print(file=out)
    for bar in results["bars"]:
        state = {True: "met   ", False: "MISSED", None: "-     "}[bar["met"]]
        measured = "" if bar["measured"] is None else f", worst {bar['measured']:.2f} ({bar['where']})"
        print(f"{state} {bar['text']} {bar['promised']}{measured}", file=out)
    print(f"\nwritten to {arguments.output}/attention.json, .md and .png", file=out)
    if arguments.json:
        print(json.dumps(results, indent=2))
    return sum(bar["met"] is False for bar in results["bars"])


def main(argv: list[str] | None = None) -> int:
    """The command `bench` as a script; returns 0, or 1 with `--strict` if a promise was missed."""
    argv = sys.argv[1:] if argv is None else argv
    if argv[:1] == [_MEMORY_OF]:
        fields, name, threads = json.loads(argv[1])
        torch.set_num_threads(threads)
        print(peak_memory_here(Work(**fields), name))
        return 0
    from .cli import bench
    from .cli.main import run_script

    return run_script(bench, argv=argv)


if __name__ == "__main__":
    sys.exit(main())
