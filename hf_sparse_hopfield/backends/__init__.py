# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""How retrieval is computed: one file or folder per backend, one signature. No backend knows transformers.

A backend is a function `run(problem: RetrievalProblem) -> RetrievalResult` and a check
`refusal(problem) -> str | None` that says why it cannot serve a problem. `backend="auto"` takes the first backend
that does not refuse, by priority:

| backend     | priority | computes                                                              |
|-------------|----------|-----------------------------------------------------------------------|
| `dense`     | 400      | alpha = 1 with torch's own attention                                  |
| `native`    | 300      | alpha > 1 on the CPU, with the compiled core                          |
| `triton`    | 200      | everything without weights or traces on CUDA and ROCm                 |
| `blocked`   | 100      | everything without weights or traces, on any device, in pure PyTorch  |
| `reference` | 0        | everything; it is the definition that the others are tested against   |
"""

from . import blocked, dense, native, reference, triton
from .backend import Backend
from .key_screen import KeyScreen
from .problem import RetrievalProblem, RetrievalResult
from .registry import available_backends, select_backend


__all__ = [
    "Backend",
    "KeyScreen",
    "RetrievalProblem",
    "RetrievalResult",
    "available_backends",
    "blocked",
    "dense",
    "native",
    "reference",
    "select_backend",
    "triton",
]
