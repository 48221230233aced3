# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The results as Markdown and as a plot."""

from hf_sparse_hopfield.benchmark.gpu.report import markdown, plot


def record(method, seconds, kind="forward", **changes):
    label = f"{kind} 8, 32, 1024, 64 bf16"
    return {
        **{"label": label, "kind": kind, "method": method, "kernels": method, "seconds": seconds, "alpha": 2.0},
        **{"inputs": "sharp", "is_causal": True, "dtype": "bfloat16", "batch": 8, "length": 1024, "head_dim": 64},
        **{"mean_support": 8.0, "ratio": 0.001 / seconds, "graph_seconds": None, "graph_ratio": None},
        **{"bytes": 3 * 2**20, "tiles": None},
        **changes,
    }


RESULTS = {
    "device": {"gpu": "NVIDIA X", "torch": "2.13", "triton": "3.9"},
    "records": [
        record("sdpa", 0.001, kernels="flash"),
        record("triton", 0.0005, tiles=0.25),
        record("sdpa", 0.001, "decode", graph_seconds=1e-4, graph_ratio=1.0),
        record("screened", 0.002, "decode", graph_seconds=5e-5, graph_ratio=2.0),
        record("triton", 0.002, "training", ratio=None, bytes=None),  # dense attention did not run
    ],
    "left_out": [
        {"label": "training", "alpha": 1.5, "inputs": "local", "method": "sdpa", "reason": "OutOfMemoryError: CUDA"},
        {"label": "all", "alpha": None, "inputs": "", "method": "adasplash", "reason": "not installed"},
    ],
}


def test_markdown():
    lines = markdown(RESULTS).splitlines()
    assert "- gpu: NVIDIA X" in lines and "- triton: 3.9" in lines
    assert any("promises no figures for GPUs" in line for line in lines)
    assert "| forward 8, 32, 1024, 64 bf16 | 2 | sharp | 8 | 1.000 (flash) | 2.00 | 0.250 |" in lines
    assert "| training 8, 32, 1024, 64 bf16 | 2 | sharp | 8 |  |  |  |" in lines
    assert "| decode 8, 32, 1024, 64 bf16 | 2 | sharp | 8 | 1.000 (sdpa) | 0.50 | 0.100 | 2.00 |" in lines
    assert "| forward 8, 32, 1024, 64 bf16 | 2 | sharp | 3 | 3 |  |" in lines  # megabytes
    assert "| training | 1.5 | local | sdpa | OutOfMemoryError: CUDA |" in lines
    assert "| all |  |  | adasplash | not installed |" in lines


def test_plot(tmp_path):
    plot(RESULTS, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 1000
    plot({**RESULTS, "records": []}, tmp_path / "empty.png")
