# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Results are compared with the promises correctly."""

from hf_sparse_hopfield.benchmark import suite
from hf_sparse_hopfield.benchmark.bars import check_bars


def record(method, seconds, kind="forward", length=1024, alpha=2.0, support=8, label="work", dtype="float32"):
    return {
        "label": label,
        "method": method,
        "kind": kind,
        "length": length,
        "alpha": alpha,
        "support": support,
        "dtype": dtype,
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
    bars = {bar["text"]: bar for bar in check_bars({"records": records, "memory": memory})}
    bar = bars["blocked, alpha 2.0, 1024-4096, forward"]
    assert bar["measured"] == 0.25
    assert bar["met"] is False
    assert bar["where"].startswith("x")
    assert bars["blocked, alpha 2.0, 1024-4096, training"]["met"] is None
    assert bars["blocked, peak extra memory, forward, against sdpa"]["met"] is True
    assert bars["blocked, peak extra memory, training, against sdpa"]["met"] is False
    assert bars["native, peak extra memory, training, against sdpa"]["met"] is None


def test_what_is_promised_with_vnni_only():
    records = [
        record(method, seconds, "decode", 4096, label="decode")
        for method, seconds in (("sdpa", 7.0), ("screened", 1.0))
    ]
    search = [{"queries": 1, "ratio": 2.0, "label": "memory"}, {"queries": 64, "ratio": 2.5, "label": "memory"}]
    reads = [
        {"share": share, "support": 8, "label": "decode", "length": length}
        for share, length in ((1.2, 4096), (1.1, 16384), (1.9, 1024))  # short rows are not promised
    ]
    results = {"records": records, "search": search, "reads": reads}
    for vnni in (True, False):
        bars = {bar["text"]: bar for bar in check_bars(results, vnni)}
        decode = bars["decode with a screen, float32, alpha 2.0, 4096 keys"]
        assert decode["measured"] == 7.0 and decode["met"] is (False if vnni else None)
        assert bars["memory against faiss, 64 queries"]["met"] is (True if vnni else None)
        read = bars["bytes that decode reads, against int8 keys, 4096 keys and more"]
        assert read["met"] is False and read["measured"] == 1.2


def test_works_cover_the_promises():
    records = [
        record(name, 1.0, work.kind, work.length, work.alpha, work.support, work.label, work.dtype)
        for work, names in suite.works()
        for name in ["sdpa", *names]
    ]
    others = ("memory", "bytes")
    bars = [bar for bar in check_bars({"records": records}) if not any(word in bar["text"] for word in others)]
    assert len(bars) > 30 and all(bar["measured"] is not None for bar in bars)
