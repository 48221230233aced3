# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Compiles the Triton kernels for GPUs that are not here, and reads registers, spills and shared memory off the result.

    python -m hf_sparse_hopfield.benchmark.compile_kernels --output docs/gpu_kernels.md

The compilers are in the triton package; no driver is needed.
"""

import argparse
import itertools
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ..backends.triton.launch import PIECES, padded
from ..backends.triton.tiles import CANDIDATES, Tile, decode_tile, tile_for


@dataclass(frozen=True)
class Device:
    """
    A kind of GPU.

    Args:
        name (`str`): Its name in the table.
        kind (`str`): The kind whose tiles it uses.
        backend, arch, warp (`str`, `str` or `int`, `int`): As triton's `GPUTarget` takes them.
        shared (`int`): Bytes of shared memory that a program may use.
    """

    name: str
    kind: str
    backend: str
    arch: str | int
    warp: int
    shared: int


DEVICES = {
    device.name: device
    for device in (
        Device("sm_80", "sm80", "cuda", 80, 32, 163 * 1024),
        Device("sm_86", "sm86", "cuda", 86, 32, 99 * 1024),
        Device("sm_90", "sm90", "cuda", 90, 32, 227 * 1024),
        Device("sm_100", "sm100", "cuda", 100, 32, 227 * 1024),
        Device("gfx942", "gfx9", "hip", "gfx942", 64, 64 * 1024),
    )
}
DECODERS = ("score_keys", "screen_keys", "read_values")
KERNELS = ("survey", "solve", "grad_rows", "grad_keys", *DECODERS)
MEMBERS = {2.0: 20, 1.5: 15, 0.0: 0}

_FLOATS = {
    "MAXIMUM",
    "SHIFT",
    "SCORES",
    "MEAN",
    "PARTS",
    "BETA",
    "ALPHA",
    "SINKS",
    "TOP",
    "OUT_PARTS",
    "UPPER",
    "BOUNDS",
}
_OTHERS = {"MASK": "*u8", "FLAGS": "*i8", "LIST": "*i16", "COUNT": "*i32", "FOUND": "*i32", "SEED": "*i64", "CODES": "*u8",
           "QUERY_SEGMENTS": "*i32", "KEY_SEGMENTS": "*i32", "SCALES": "*bf16"}  # fmt: skip
_NUMBERS = {"scaling", "beta_value", "alpha_value", "softcap", "dropout"}
_OPTIONAL = {
    "plain": (),
    "settings": ("MASK", "SINKS", "BETA", "ALPHA"),
    "all": ("MASK", "BIAS", "SINKS", "BETA", "ALPHA", "QUERY_SEGMENTS", "KEY_SEGMENTS", "SEED"),
}


@dataclass(frozen=True)
class Job:
    """
    One compilation.

    Args:
        kernel (`str`): Name of the kernel.
        device ([`Device`]): The device.
        dtype (`str`): `"bf16"`, `"fp16"` or `"fp32"`.
        width (`int`): Width of keys and values.
        member (`int`): 20, 15 or 0.
        options (`str`):
            `"plain"` (causal), `"settings"` (learned beta and alpha, padding and sinks) or `"all"` (every option at once).
        tile ([`Tile`], *optional*): By default that of the table.
    """

    kernel: str
    device: Device
    dtype: str
    width: int
    member: int
    options: str = "plain"
    tile: Tile | None = None


@dataclass(frozen=True)
class Used:
    """
    What a compiled kernel uses.

    Args:
        registers, spilled, shared (`int`): Registers of a thread; bytes of registers that do not fit; bytes of shared memory.
    """

    registers: int
    spilled: int
    shared: int


def kernel_called(name: str) -> Any:
    """A kernel by its name."""
    from ..backends.triton.kernels import backward, decode, forward

    return next(getattr(module, name) for module in (forward, backward, decode) if hasattr(module, name))


def compiled(job: Job) -> Used:
    """
    Compile a kernel.

    Args:
        job ([`Job`]): What to compile.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kernel = kernel_called(job.kernel)
    tile = job.tile or chosen_tile(job)
    constants = _constants(job, tile)
    signature, fixed, aligned = {}, {}, {}
    for place, parameter in enumerate(kernel.params):
        name = parameter.name
        given = _OPTIONAL[job.options]
        missing = name in _OPTIONAL["all"] and name not in given or name == "ALPHA" and job.member
        if parameter.is_constexpr or missing:
            signature[name] = "constexpr"
            fixed[(place,)] = constants.get(name)
            continue
        signature[name] = _type_of(name, job)
        if (
            signature[name].startswith("*")
            or name.endswith(("_batch", "_head", "_row"))
            or name in ("width", "value_width")
        ):
            aligned[(place,)] = [["tt.divisibility", 16]]
    source = ASTSource(kernel, signature, constexprs=fixed, attrs=aligned)
    target = GPUTarget(job.device.backend, job.device.arch, job.device.warp)
    binary = triton.compile(source, target=target, options={"num_warps": tile.warps, "num_stages": tile.stages})
    return _used(binary, job.device)


def chosen_tile(job: Job) -> Tile:
    """The tile that the table has for a compilation."""
    if job.kernel in DECODERS:
        tile = decode_tile(job.device.kind, 4 if job.dtype == "fp32" else 2, job.width, 4)
        assert tile is not None
        return tile
    work = "heavy" if job.options == "all" else "cheap" if job.member else "general"
    return tile_for(job.device.kind, 4 if job.dtype == "fp32" else 2, job.width, work)


def _constants(job: Job, tile: Tile) -> dict[str, Any]:
    every = job.options == "all"
    return {
        "HEADS": 32,
        "GROUPS": 4,
        "D": padded(job.width),
        "DV": padded(job.width),
        "BM": tile.rows,
        "BN": tile.keys,
        "CANDIDATES": CANDIDATES,
        "CHUNK": 32,
        "PIECE": min(PIECES[4 if job.dtype == "fp32" else 2], padded(job.width), tile.piece),
        "VALUE_PIECE": min(PIECES[4 if job.dtype == "fp32" else 2], padded(job.width), tile.piece),
        "CAUSAL": True,
        "WINDOWED": every,
        "MASK_ROWS": False,
        "SOFTCAP": every,
        "MEMBER": job.member,
        "PRECISION": "ieee" if job.device.backend == "hip" or job.kernel in DECODERS else "tf32x3",
        "PRECISE": job.dtype == "fp32",
        "WANT_BETA": job.options != "plain",
        "WANT_ALPHA": job.options != "plain" and not job.member,
        "EACH_ROW": False,
        "ROWS": tile.rows,
    }


def _type_of(name: str, job: Job) -> str:
    if name in _FLOATS:
        return "*fp32"
    if name in _OTHERS:
        return _OTHERS[name]
    if name in _NUMBERS:
        return "fp32"
    return f"*{job.dtype}" if name.isupper() else "i32"


def _used(binary: Any, device: Device) -> Used:
    if device.backend == "hip":
        text = binary.asm["amdgcn"]
        counts = {name: int(re.search(rf"\.{name}:\s+(\d+)", text).group(1)) for name in  # type: ignore[union-attr]
                  ("vgpr_count", "vgpr_spill_count", "sgpr_spill_count")}  # fmt: skip
        return Used(counts["vgpr_count"], 4 * counts["vgpr_spill_count"], binary.metadata.shared)
    from triton.backends.nvidia.compiler import get_ptxas

    code = binary.asm["ptx"]
    arch = re.search(r"\.target (sm_\w+)", code).group(1)  # type: ignore[union-attr]
    with tempfile.NamedTemporaryFile(suffix=".ptx", mode="w") as file:
        file.write(code)
        file.flush()
        command = [
            get_ptxas(device.arch).path,
            "-v",
            "--regAllocOptLevel=2",
            f"--gpu-name={arch}",
            file.name,
            "-o",
            "/dev/null",
        ]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    registers, spilled = (int(re.search(pattern, said).group(1)) for pattern in  # type: ignore[union-attr]
                          (r"Used (\d+) registers", r"(\d+) bytes spill stores"))  # fmt: skip
    return Used(registers, spilled, binary.metadata.shared)


def jobs(
    devices: list[str], dtypes: list[str], widths: list[int], options: list[str], kernels: list[str]
) -> Iterator[Job]:
    """The compilations of a table."""
    for name, dtype, width, chosen in itertools.product(devices, dtypes, widths, options):
        members = (
            [0] if chosen == "all" else list(MEMBERS.values())
        )  # with alpha as a tensor only the general member runs
        for kernel, member in itertools.product(kernels, members):
            yield Job(kernel, DEVICES[name], dtype, width, member, chosen)


def table(results: dict[Job, Used]) -> str:
    """The results as Markdown: a line for all kernels of a case, each with registers, bytes spilled and KB of shared memory."""
    kernels = list(dict.fromkeys(job.kernel for job in results))
    lines = [
        f"| device | dtype | width | options | alpha | tile | {' | '.join(kernels)} |",
        f"| --- | --- | --- | --- | --- | --- |{' --- |' * len(kernels)}",
    ]
    alphas = {20: "2", 15: "1.5", 0: "any"}
    cases: dict[tuple, dict[str, str]] = {}
    for job, used in results.items():
        tile = job.tile or chosen_tile(replace(job, kernel="survey"))
        shape = f"{tile.rows} x {tile.keys}, {tile.warps} warps, {tile.stages}"
        case = (job.device.name, job.dtype, job.width, job.options, alphas[job.member], shape)
        cases.setdefault(case, {})[job.kernel] = f"{used.registers}, {used.spilled}, {used.shared / 1024:.0f}"
    for case, found in cases.items():
        lines.append(f"| {' | '.join(map(str, case))} | {' | '.join(found.get(kernel, '') for kernel in kernels)} |")
    return "\n".join(lines)


def main() -> None:
    """Compile what the command line asks for, and print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", nargs="+", choices=list(DEVICES), default=list(DEVICES))
    parser.add_argument("--dtypes", nargs="+", choices=["bf16", "fp16", "fp32"], default=["bf16", "fp32"])
    parser.add_argument("--widths", nargs="+", type=int, default=[64, 128, 256])
    parser.add_argument("--options", nargs="+", choices=list(_OPTIONAL), default=list(_OPTIONAL))
    parser.add_argument("--kernels", nargs="+", default=list(KERNELS))
    parser.add_argument("--output", help="Markdown file to write")
    arguments = parser.parse_args()
    results = {}
    for job in jobs(arguments.devices, arguments.dtypes, arguments.widths, arguments.options, arguments.kernels):
        results[job] = used = compiled(job)
        flag = " SPILLS" if used.spilled else " TOO LARGE" if used.shared > job.device.shared else ""
        print(
            f"{job.device.name} {job.dtype} {job.width} {job.options} {job.member} {job.kernel}: {used}{flag}",
            flush=True,
        )
    if arguments.output:
        with open(arguments.output, "w", encoding="utf-8") as file:
            file.write(f"{table(results)}\n")


if __name__ == "__main__":
    main()
