# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The benchmark measures what it claims and compares the results with the promises correctly."""

import json
import sys
import time

import pytest
import torch

from hf_sparse_hopfield import benchmark
from hf_sparse_hopfield.benchmark import Work
from hf_sparse_hopfield.cli.main import main
from hf_sparse_hopfield.functional import support_size


@pytest.mark.parametrize(("alpha", "support"), [(2.0, 4), (1.5, 16), (2.0, 256)])
def test_sharpness_gives_the_wanted_support(alpha, support):
    work = Work("forward", 1, 2, 1024, alpha, support)
    query, key, _ = work.tensors()
    found = support_size(query @ key.transpose(-1, -2) / 8, alpha).float().mean()
    assert support / 1.5 < found < support * 1.5


def test_densest_work_uses_all_keys():
    query, key, _ = Work("forward", 1, 1, 256, 1.2, 0).tensors()
    assert (support_size(query @ key.transpose(-1, -2) / 8, 1.2) == 256).all()


@pytest.mark.parametrize("kind", ["forward", "training", "decode"])
@pytest.mark.parametrize("is_causal", [False, True])
def test_methods_agree_on_one_hot_rows(kind, is_causal):
    """Scores so far apart that softmax and entmax choose the same single key: all methods must return the same."""
    work = Work(kind, 1, 4, 160, 2.0, 4, is_causal, kv_heads=2, head_dim=16)
    query, key, value = (tensor.detach() for tensor in work.tensors())
    key = torch.nn.functional.one_hot(torch.arange(160) % 16, 16).float().expand(1, 2, 160, 16)
    value = key.roll(1, -1).contiguous()
    query = query.sign() * 0 + 1e4 * torch.nn.functional.one_hot(torch.tensor(0), 16).float()
    expected = benchmark.method("sdpa", work)(query, key, value)
    for name in ("eager softmax", "entmax", "blocked", "native", "auto"):
        attend = benchmark.method(name, work)
        if attend is not None:
            torch.testing.assert_close(attend(query, key, value), expected)


def test_backend_that_refuses_is_left_out():
    assert benchmark.method("dense", Work("forward", 1, 1, 8)) is None


def test_times_are_medians_in_turns():
    order = []
    times = benchmark.time_interleaved({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, 1e-3)
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

    benchmark.time_interleaved({"slow": slow, "fast": lambda: calls.append("fast")}, 0.02)
    assert calls.count("slow") == 1 + 3 and calls.count("fast") >= 1 + 9


def record(method, seconds, kind="forward", length=1024, alpha=2.0, support=8, label="work"):
    return {
        "label": label,
        "method": method,
        "kind": kind,
        "length": length,
        "alpha": alpha,
        "support": support,
        "seconds": seconds,
        "ratio": 0.0,
    }


def test_bars_look_at_the_worst():
    records = [
        record("sdpa", 1.0),
        record("blocked", 1.0),
        record("sdpa", 1.0, label="x"),
        record("blocked", 4.0, label="x"),
    ]
    memory = [
        {"kind": kind, "method": method, "bytes": size}
        for kind in ("forward", "training")
        for method, size in (("sdpa", 10), ("blocked", 20), ("native", None))
    ]
    bars = {bar["text"]: bar for bar in benchmark.check_bars(records, memory)}
    bar = bars["blocked, alpha 2.0, 1024-4096, forward"]
    assert bar["measured"] == 0.25
    assert bar["met"] is False
    assert bar["where"].startswith("x")
    assert bars["blocked, alpha 2.0, 1024-4096, training"]["met"] is None
    assert bars["blocked, peak extra memory, forward, against sdpa"]["met"] is True
    assert bars["blocked, peak extra memory, training, against sdpa"]["met"] is False
    assert bars["native, peak extra memory, training, against sdpa"]["met"] is None


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the peak memory of a process")
def test_peak_memory_in_a_fresh_process():
    work = Work("forward", 1, 4, 1024)
    assert 4 * 1024**2 * 4 < benchmark.peak_memory(work, "eager softmax") < 2**30


def test_main_writes_everything(tmp_path, monkeypatch, capsys):
    small = [
        (Work(kind, 1, 2, 130, alpha, 4), ["blocked", "auto"])
        for kind in ("forward", "training")
        for alpha in (2.0, 1.5)
    ]
    monkeypatch.setattr(benchmark, "works", lambda quick: small)
    monkeypatch.setattr(benchmark, "lengths", lambda quick: small[:1])
    assert benchmark.main(["--seconds", "0", "--no-memory", "--output", str(tmp_path / "out")]) == 0
    assert "auto, any density" in capsys.readouterr().out
    results = json.loads((tmp_path / "out/attention.json").read_text())
    assert {r["method"] for r in results["records"]} == {"sdpa", "blocked", "auto"}
    assert "| work (batch, heads, length, head dim) |" in (tmp_path / "out/attention.md").read_text()
    assert (tmp_path / "out/attention.png").stat().st_size > 1000
    assert (
        main(["bench", "--seconds", "0", "--no-memory", "--output", str(tmp_path / "out"), "--json", "--debug"]) == 0
    )
    assert {r["method"] for r in json.loads(capsys.readouterr().out)["records"]} == {"sdpa", "blocked", "auto"}
    missed = [{"met": False, "text": "", "promised": "", "measured": None}]
    monkeypatch.setattr(benchmark, "check_bars", lambda *args: missed)
    monkeypatch.setattr(benchmark, "markdown", lambda results: "")
    options = ["--seconds", "0", "--no-memory", "--output", str(tmp_path / "out")]
    assert benchmark.main(options) == 0 and benchmark.main([*options, "--strict"]) == 1
    assert main(["bench", "--threads", "0"]) == 1


def test_works_cover_the_promises():
    records = [
        record(name, 1.0, work.kind, work.length, work.alpha, work.support, f"{work}")
        for work, names in benchmark.works()
        for name in ["sdpa", *names]
    ]
    assert all(bar["measured"] is not None for bar in benchmark.check_bars(records, []) if "memory" not in bar["text"])
