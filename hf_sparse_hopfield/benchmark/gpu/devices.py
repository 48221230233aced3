# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""What differs between a GPU and Triton's interpreter, for the benchmark: how a call is timed, and what is worth timing."""

import contextlib
import gc
import importlib.metadata
import importlib.util
import platform
from collections.abc import Callable
from typing import Protocol

import torch

from ...backends.triton.launch import interpreted
from ..timing import seconds_of


Call = Callable[[], object]
_CACHE_BYTES = 256 * 2**20  # more than the L2 cache of any GPU


class TimingDevice(Protocol):
    """
    A device as the benchmark sees it.

    Args:
        name (`str`): As `--device` names it.
        place (`torch.device`): Where tensors are.
        tiny (`bool`): Only the smallest sizes finish on it.
        rounds (`int`): Most rounds of a measurement.
    """

    name: str
    place: torch.device
    tiny: bool
    rounds: int

    def seconds_of(self, call: Call) -> float:
        """Run a call; the seconds that it took on the device."""

    def peak_bytes(self, call: Call) -> int | None:
        """Run a call; the largest memory that it had beyond what was there before. `None` if the device does not tell."""

    def graphed(self, call: Call) -> Call:
        """The call, recorded once and replayed without Python; its tensors stay the same."""

    def recover(self) -> None:
        """Free what a failed call left. Raises an error if nothing can run after it."""

    def description(self) -> dict[str, str]:
        """Machine, GPU and versions, by name."""


class CudaDevice:
    """The GPU that is torch's current one. Times are between two CUDA events, with a cold L2 cache."""

    name, tiny, rounds = "cuda", False, 200

    def __init__(self) -> None:
        self.place = torch.device("cuda", torch.cuda.current_device())
        self._cache = torch.empty(_CACHE_BYTES, dtype=torch.int8, device=self.place)

    def seconds_of(self, call: Call) -> float:
        """Run a call; the seconds between an event before it and one after it."""
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        self._cache.zero_()
        start.record()
        call()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3

    def peak_bytes(self, call: Call) -> int | None:
        """Run a call; the largest memory that torch had allocated beyond what was there before."""
        torch.cuda.synchronize(self.place)
        torch.cuda.reset_peak_memory_stats(self.place)
        before = torch.cuda.memory_allocated(self.place)
        call()
        torch.cuda.synchronize(self.place)
        return torch.cuda.max_memory_allocated(self.place) - before

    def graphed(self, call: Call) -> Call:
        """The call as a CUDA graph. Its kernels are compiled before, on a side stream, as torch asks for."""
        stream = torch.cuda.Stream(self.place)
        stream.wait_stream(torch.cuda.current_stream(self.place))
        with torch.cuda.stream(stream):
            for _ in range(3):
                call()
        torch.cuda.current_stream(self.place).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
        return graph.replay

    def recover(self) -> None:
        """Give memory back, and wait: after an illegal access every call fails, and this one raises."""
        gc.collect()
        torch.cuda.synchronize(self.place)
        torch.cuda.empty_cache()

    def description(self) -> dict[str, str]:
        """Machine, GPU and versions, by name."""
        properties = torch.cuda.get_device_properties(self.place)
        runtime = f"ROCm {torch.version.hip}" if torch.version.hip else f"CUDA {torch.version.cuda}"
        size = f"{properties.total_memory / 2**30:.0f} GB, {properties.multi_processor_count} multiprocessors"
        kind = (
            properties.gcnArchName
            if torch.version.hip
            else f"compute capability {properties.major}.{properties.minor}"
        )
        return {**_versions(), "gpu": f"{properties.name} ({size}, {kind})", "runtime": runtime}


class InterpreterDevice:
    """Triton's interpreter, which runs the kernels on the CPU: everything but the times is as on a GPU. For tests."""

    name, tiny, rounds = "interpreter", True, 1
    place = torch.device("cpu")

    def seconds_of(self, call: Call) -> float:
        """Run a call; the seconds that it took."""
        return seconds_of(call)

    def peak_bytes(self, call: Call) -> int | None:
        """Unknown."""
        return None

    def graphed(self, call: Call) -> Call:
        """The call itself."""
        return call

    def recover(self) -> None:
        """Nothing to do."""

    def description(self) -> dict[str, str]:
        """Machine and versions, by name."""
        return {**_versions(), "gpu": "none: Triton's interpreter, whose times mean nothing", "runtime": "none"}


def _versions() -> dict[str, str]:
    triton = "not installed"
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        triton = importlib.metadata.version("triton")
    return {"machine": f"{platform.node()}, {platform.platform()}", "torch": torch.__version__, "triton": triton}


def find_device(name: str) -> TimingDevice:
    """
    The device that `--device` names.

    Args:
        name (`str`): `"cuda"` (also for ROCm) or `"interpreter"`.

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield.benchmark.gpu.devices import find_device

    >>> try:
    ...     device = find_device("cuda").name
    ... except ValueError as error:
    ...     device = "cuda" if str(error).startswith("--device cuda: ") else error
    >>> device
    'cuda'
    ```
    """
    if importlib.util.find_spec("triton") is None:
        raise ValueError(
            f"--device {name}: the package triton is not installed; use pip install 'hf-sparse-hopfield[triton]'."
        )
    if name == "interpreter":
        if not interpreted():
            raise ValueError("--device interpreter: set TRITON_INTERPRET=1; Triton reads it when it is imported.")
        return InterpreterDevice()
    if not torch.cuda.is_available():
        if torch.version.cuda is None and torch.version.hip is None:
            reason = (
                f"torch {torch.__version__} is built without CUDA and ROCm; install a build from https://pytorch.org"
            )
        else:
            reason = "torch.cuda.is_available() is False; nvidia-smi (rocm-smi) and CUDA_VISIBLE_DEVICES tell why"
        raise ValueError(f"--device {name}: there is no GPU: {reason}.")
    if interpreted():
        raise ValueError(f"--device {name}: TRITON_INTERPRET=1 runs the kernels on the CPU; unset it.")
    return CudaDevice()
