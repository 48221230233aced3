# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The tests of the compiled core, run on a core whose AVX-512 and VNNI instructions are emulated (`emulated.hpp`): every
instruction set is tested on a processor that has only AVX2. Those of ARM are tested with qemu, without Python."""

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from .core_building import COMPILER, SOURCE, build, run_tests


# What the compiler must not produce, and what the core asks the processor for.
REPLACED = {
    "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma": "avx2,fma",
    ",avx512vnni": "",
    ",avxvnni": "",
    '"+v"(': '"+m"(',
    "static const int level = supported_level();": "static const int level = avx512_vnni_level;",
    "if (forced == avx_vnni_level && !has_avx_vnni()) return avx2_level;": "",
}


@pytest.mark.slow
@pytest.mark.skipif(COMPILER is None or platform.machine() != "x86_64", reason="needs g++ on x86")
def test_every_instruction_set_emulated(tmp_path):
    source = Path(shutil.copytree(SOURCE, tmp_path / "source"))
    missing = set(REPLACED)
    for path in source.rglob("*.?pp"):
        text = path.read_text()
        for old, new in REPLACED.items():
            if old in text:
                missing.discard(old)
                text = text.replace(old, new)
        path.write_text(text)
    assert not missing
    instructions = ("-mavx2", "-mfma", "-mf16c", "-mbmi", "-mbmi2", "-mpopcnt")
    emulation = Path(__file__).with_name("emulated.hpp")
    build(tmp_path / "_core.so", "-O2", *instructions, "-include", str(emulation), source=source)
    run_tests(tmp_path / "_core.so", "not compile and not without_a_core")


ARM_COMPILER, QEMU = shutil.which("aarch64-linux-gnu-g++"), shutil.which("qemu-aarch64")


@pytest.mark.slow
@pytest.mark.skipif(
    ARM_COMPILER is None or QEMU is None, reason="needs g++-aarch64-linux-gnu and qemu-user (packages of Debian)"
)
@pytest.mark.parametrize(("processor", "level"), [("max", 5), ("cortex-a53", 0)])
def test_arm_with_and_without_the_dot_product(tmp_path, processor, level):
    sources = sorted(str(path) for path in SOURCE.rglob("*.cpp"))
    check, program = str(Path(__file__).with_name("screen_check.cpp")), str(tmp_path / "screen_check")
    flags = ("-std=c++17", "-O2", "-fopenmp", "-w", "-static", f"-I{SOURCE}")
    subprocess.run([str(ARM_COMPILER), *flags, *sources, check, "-o", program], check=True, capture_output=True)
    run = subprocess.run([str(QEMU), "-cpu", processor, program], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.splitlines() == [f"instruction set {level}", "all alike"]
