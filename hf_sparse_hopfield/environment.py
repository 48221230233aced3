# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""What a bug report needs: versions, the processor, and which backends can run here and why others cannot."""

import importlib.util
import os
import platform
import shutil
from importlib import metadata
from pathlib import Path
from typing import Any

from .version import __version__


_REQUIRED = (
    "torch",
    "transformers",
    "accelerate",
    "datasets",
    "evaluate",
    "huggingface-hub",
    "safetensors",
    "tokenizers",
    "numpy",
    "rich",
    "tqdm",
)
_OPTIONAL = (
    "triton",
    "matplotlib",
    "shtab",
    "pillow",
    "sacrebleu",
    "peft",
    "trl",
    "sentence-transformers",
    "timm",
    "gguf",
    "faiss-cpu",
)
_COMPILERS = ("c++", "g++", "clang++", "cl")
# Those that the compiled core is built for, or that explain its speed.
_CPU_FEATURES = (
    "avx2",
    "fma",
    "f16c",
    "avx_vnni",
    "avx512f",
    "avx512_vnni",
    "avx512_bf16",
    "amx_int8",
    "asimddp",
    "sve",
)
_VARIABLES = (
    "HF_SPARSE_HOPFIELD_",
    "OMP_",
    "MKL_",
    "CUDA_VISIBLE_DEVICES",
    "TRITON_INTERPRET",
    "TRANSFORMERS_",
    "HF_HUB_",
)


def processor() -> str:
    """The name of the processor."""
    return _cpu_info("model name") or platform.processor() or platform.machine()


def environment() -> dict[str, dict[str, Any]]:
    """
    Describe this machine and what is installed.

    Returns:
        `dict`: `versions`, `machine`, `backends` (for each device, each backend with `None` if it can run there or the reason
        why not) and `variables` of the process that change what the package does.

    Example:

    ```python
    >>> from hf_sparse_hopfield.environment import environment

    >>> sorted(environment())
    ['backends', 'machine', 'variables', 'versions']

    ```
    """
    return {
        "versions": _versions(),
        "machine": _machine(),
        "backends": _backends(),
        "variables": {
            name: value
            for name, value in sorted(os.environ.items())
            if name.startswith(_VARIABLES) and "TOKEN" not in name  # nobody should publish one
        },
    }


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {"hf-sparse-hopfield": __version__, "python": platform.python_version()}
    for name in (*_REQUIRED, *_OPTIONAL):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def _machine() -> dict[str, Any]:
    import torch

    from .backends.native import library

    flags = (_cpu_info("flags") or _cpu_info("Features")).split()
    devices = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    return {
        "platform": platform.platform(),
        "installed in": str(Path(__file__).parent),
        "processor": processor(),
        "processors": os.cpu_count(),
        "processor features": [name for name in _CPU_FEATURES if name in flags],
        "torch threads": torch.get_num_threads(),
        "torch instructions": torch.backends.cpu.get_cpu_capability(),
        "compiled core": f"not available: {library.missing}" if library.missing else f"built, uses {library.level()}",
        "C++ compiler": next(filter(None, map(shutil.which, _COMPILERS)), "none on PATH; a wheel needs none"),
        "torch is built for": f"CUDA {torch.version.cuda}" if torch.version.cuda else "the CPU",
        "GPUs": devices,
    }


def _backends() -> dict[str, dict[str, str | None]]:
    """For each device, the refusals of a small problem: of softmax for `dense`, of sparsemax for the others."""
    import torch

    from .backends.problem import RetrievalProblem
    from .backends.registry import BACKENDS

    found: dict[str, dict[str, str | None]] = {}
    for device in ("cpu", *(["cuda"] if torch.cuda.is_available() else [])):
        patterns = torch.zeros(1, 1, 2, 16, device=device)
        found[device] = {
            backend.name: backend.refusal(
                RetrievalProblem(
                    patterns, patterns, patterns, scaling=1.0, alpha=1.0 if backend.name == "dense" else 2.0
                )
            )
            for backend in BACKENDS
        }
    if importlib.util.find_spec("triton") is None and "cuda" not in found:
        found["cpu"]["triton"] = f"{found['cpu']['triton']}; the package triton is not installed"
    return found


def _cpu_info(field: str) -> str:
    """The first value of a field of /proc/cpuinfo; empty where there is none."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.partition(":")[0].strip() == field), "")
