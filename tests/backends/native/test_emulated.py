# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The tests of the compiled core, run on a core whose AVX-512 and VNNI instructions are emulated (`emulated.hpp`): every
instruction set is tested on a processor that has only AVX2."""

import platform
import shutil
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
