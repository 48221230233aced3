# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""A memory in a folder: saved piece by piece, mapped from disk, and whole whenever a save is interrupted."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from hf_sparse_hopfield import HopfieldMemory
from hf_sparse_hopfield.backends.native import library
from hf_sparse_hopfield.layers.memory import folder as folder_module


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def files(path: Path) -> set[str]:
    return {entry.name for entry in path.iterdir()}


def assert_same(actual: HopfieldMemory, expected: HopfieldMemory) -> None:
    assert torch.equal(actual.patterns, expected.patterns) and torch.equal(actual.rows, expected.rows)
    settings = ("alpha", "beta", "normalize", "dtype")
    assert all(getattr(actual, name) == getattr(expected, name) for name in settings)
    query = normal(3, actual.dimension, seed=9).to(actual.dtype)
    other = HopfieldMemory(expected.patterns, expected.alpha, expected.beta, expected.normalize)
    torch.testing.assert_close(actual.search(query).output, other.retrieve(query), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_save_and_load(tmp_path, dtype):
    memory = HopfieldMemory(normal(700, 12).to(dtype), alpha=1.3, beta=0.1 + 0.2, normalize=dtype == torch.float64)
    memory.remove([3, 5])
    memory.save(tmp_path / "memory")
    assert_same(HopfieldMemory.load(tmp_path / "memory"), memory)
    assert [name.partition("-")[0] for name in sorted(files(tmp_path / "memory"))] == [
        "memory.json",
        "patterns",
        "removed",
    ]


def test_an_empty_memory(tmp_path):
    HopfieldMemory(torch.empty(0, 3)).save(tmp_path / "memory")
    memory = HopfieldMemory.load(tmp_path / "memory")
    assert memory.patterns.shape == (0, 3)
    memory.add(torch.eye(3))
    memory.save(tmp_path / "memory")
    assert len(HopfieldMemory.load(tmp_path / "memory")) == 3


def test_only_what_is_new_is_written(tmp_path):
    memory = HopfieldMemory(normal(5000, 16), beta=2.0)
    memory.save(tmp_path)
    (base,) = files(tmp_path) - {"memory.json"}
    size, written = (tmp_path / base).stat().st_size, (tmp_path / base).stat().st_mtime_ns
    memory.add(normal(100, 16, seed=1))
    memory.save(tmp_path)
    (more,) = files(tmp_path) - {"memory.json", base}
    assert (tmp_path / more).stat().st_size < size / 20
    memory.remove(range(10))
    memory.save(tmp_path)
    assert len(files(tmp_path)) == 4 and (tmp_path / base).stat().st_mtime_ns == written
    assert_same(HopfieldMemory.load(tmp_path), memory)
    memory.save(tmp_path)  # nothing new
    assert len(files(tmp_path)) == 4


def test_many_saves_leave_few_files(tmp_path):
    memory, everything = HopfieldMemory(normal(1, 4)), [normal(1, 4)]
    generator = random.Random(0)
    for number in range(60):
        count = generator.choice([1, 1, 2, 30])
        everything.append(normal(count, 4, seed=number + 1))
        memory.add(everything[-1])
        memory.save(tmp_path)
        assert len(files(tmp_path)) <= 12
    assert torch.equal(HopfieldMemory.load(tmp_path).patterns, torch.cat(everything))


def test_what_is_removed_is_dropped_from_disk_in_the_end(tmp_path):
    memory = HopfieldMemory(normal(1000, 8))
    memory.save(tmp_path)
    before = sum(entry.stat().st_size for entry in tmp_path.iterdir())
    memory.remove(range(600))
    memory.save(tmp_path)
    assert sum(entry.stat().st_size for entry in tmp_path.iterdir()) < 0.6 * before
    assert_same(HopfieldMemory.load(tmp_path), memory)
    memory.remove(range(400))
    memory.save(tmp_path)
    assert len(HopfieldMemory.load(tmp_path)) == 0


def test_a_loaded_memory_is_mapped(tmp_path):
    """Loading reads nothing, and a query only what it needs: in a fresh process, the patterns are not in its memory."""
    HopfieldMemory(normal(400_000, 64), beta=2.0).save(tmp_path / "memory")
    script = f"""
import torch
from hf_sparse_hopfield import HopfieldMemory
def resident():
    text = open("/proc/self/status").read()
    return int(text.split("VmRSS:")[1].split()[0]) / 1024
small = HopfieldMemory(torch.randn(1000, 64), beta=2.0)
small.search(torch.randn(64))
before = resident()
memory = HopfieldMemory.load({str(tmp_path / "memory")!r})
loaded = resident()
memory.search(torch.randn(64))
print(loaded - before, resident() - before)
"""
    if not Path("/proc/self/status").exists() or library.missing is not None:
        pytest.skip("needs /proc and the compiled core")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded, searched = map(float, done.stdout.split())
    # of 98 MiB of patterns and 25 MiB of their int8 copy, the copy and the neighbourhood of a few patterns; how large a
    # neighbourhood the kernel maps at once differs between machines
    assert loaded < 5 and searched < 90


def test_saving_frees_the_patterns(tmp_path):
    memory = HopfieldMemory(normal(1000, 8))
    address = memory.patterns.data_ptr()
    memory.save(tmp_path)
    assert memory.patterns.data_ptr() != address and torch.equal(memory.patterns, normal(1000, 8))


def test_saving_to_another_folder(tmp_path):
    memory = HopfieldMemory(normal(600, 8))
    memory.save(tmp_path / "one")
    memory.add(normal(5, 8, seed=1))
    memory.save(tmp_path / "two")
    assert (len(HopfieldMemory.load(tmp_path / "one")), len(HopfieldMemory.load(tmp_path / "two"))) == (600, 605)
    with pytest.raises(FileExistsError, match="holds another memory"):
        memory.save(tmp_path / "one")


def test_two_writers(tmp_path):
    HopfieldMemory(normal(5, 3)).save(tmp_path)
    one, two = HopfieldMemory.load(tmp_path), HopfieldMemory.load(tmp_path)
    one.add(normal(3))
    one.save(tmp_path)
    two.add(normal(3, seed=1))
    with pytest.raises(FileExistsError, match="saved again since this one was loaded"):
        two.save(tmp_path)
    assert_same(HopfieldMemory.load(tmp_path), one)


def test_foreign_folders_are_refused(tmp_path):
    memory = HopfieldMemory(normal(5, 3))
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match=r"holds other files \(notes.txt\)"):
        memory.save(tmp_path)
    assert files(tmp_path) == {"notes.txt"}
    with pytest.raises(FileNotFoundError, match="has no memory.json"):
        HopfieldMemory.load(tmp_path)
    (tmp_path / "file").write_text("")
    memory.save(tmp_path / "file.safetensors")


@pytest.mark.parametrize("failing", ["first file", "second file", "manifest"])
def test_a_save_that_fails_changes_nothing(tmp_path, monkeypatch, failing):
    memory = HopfieldMemory(normal(600, 8))
    memory.save(tmp_path)
    memory.add(normal(40, 8, seed=1))
    memory.remove([0])
    before, expected = files(tmp_path), memory.patterns.clone()
    calls = []
    original = folder_module.save_file

    def fail(*arguments, **options):
        calls.append(arguments)
        if failing == "manifest" or len(calls) == (1 if failing == "first file" else 2):
            raise OSError("disk full")
        return original(*arguments, **options)

    monkeypatch.setattr(folder_module, "write_json" if failing == "manifest" else "save_file", fail)
    with pytest.raises(OSError, match="disk full"):
        memory.save(tmp_path)
    monkeypatch.undo()
    assert files(tmp_path) == before and len(HopfieldMemory.load(tmp_path)) == 600
    assert torch.equal(memory.patterns, expected)
    memory.save(tmp_path)
    assert_same(HopfieldMemory.load(tmp_path), memory)


def test_a_failed_save_to_another_folder_does_no_harm(tmp_path, monkeypatch):
    memory = HopfieldMemory(normal(600, 8))
    memory.save(tmp_path / "one")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(folder_module, "write_json", fail)
    with pytest.raises(OSError, match="disk full"):
        memory.save(tmp_path / "two")
    monkeypatch.undo()
    memory.add(normal(8, seed=1))
    memory.save(tmp_path / "one")
    assert_same(HopfieldMemory.load(tmp_path / "one"), memory)


WRITER = """
import sys, torch
from hf_sparse_hopfield import HopfieldMemory
memory = HopfieldMemory(torch.zeros(1, 8))
memory.save(sys.argv[1])
number = 0
while True:
    number += 1
    memory.add(torch.full((1 + number % 300, 8), float(number)))
    if number % 7 == 0:
        memory.remove(range(3))
    memory.save(sys.argv[1])
    print(number, len(memory), flush=True)
"""


@pytest.mark.skipif(os.name != "posix", reason="needs a signal that cannot be caught")
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_killed_process_loses_nothing_that_was_saved(tmp_path, seed):
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path / "memory")], stdout=subprocess.PIPE, text=True
    )
    for _ in range(5):
        writer.stdout.readline()
    time.sleep(0.05 + 0.2 * random.Random(seed).random())
    writer.send_signal(signal.SIGKILL)
    said = writer.stdout.read().splitlines()
    number, length = map(int, said[-1].split())
    memory = HopfieldMemory.load(tmp_path / "memory")
    last = int(memory.patterns[-1, 0])
    assert last in (number, number + 1)  # the last save may have been complete without being said
    if last == number:
        assert len(memory) == length
    assert torch.equal(memory.patterns[:, 0], memory.patterns[:, 0].sort().values)
    memory.add(torch.zeros(1, 8))
    memory.save(tmp_path / "memory")  # removes what was left behind
    named = json.loads((tmp_path / "memory" / "memory.json").read_text())["segments"]
    used = {entry[kind] for entry in named for kind in ("file", "removed")} - {None}
    assert files(tmp_path / "memory") == used | {"memory.json"}


def test_a_lost_or_damaged_file_is_an_error(tmp_path):
    memory = HopfieldMemory(normal(600, 8))
    memory.remove([1])
    memory.save(tmp_path)
    manifest = json.loads((tmp_path / "memory.json").read_text())
    (entry,) = manifest["segments"]
    content = (tmp_path / entry["file"]).read_bytes()
    (tmp_path / entry["file"]).write_bytes(content[:-5])
    with pytest.raises(ValueError, match="damaged or not a safetensors file"):
        HopfieldMemory.load(tmp_path)
    (tmp_path / entry["file"]).unlink()
    with pytest.raises(FileNotFoundError, match="a part of the memory is lost"):
        HopfieldMemory.load(tmp_path)
    (tmp_path / entry["file"]).write_bytes(content)
    (tmp_path / entry["removed"]).unlink()
    with pytest.raises(FileNotFoundError, match="a part of the memory is lost"):
        HopfieldMemory.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "does not describe a HopfieldMemory"),
        ({"version": "99"}, "version '99'"),
        ({"alpha": "soft"}, "damaged metadata"),
        ({"alpha": 3.0}, "damaged memory.json: alpha"),
        ({"dimension": 9}, r"shape \(600, 8\), but memory.json says \(600, 9\)"),
        ({"dimension": "8"}, "its dtype, dimension or next_row is wrong"),
        ({"dtype": "torch.int64"}, "its dtype, dimension or next_row is wrong"),
        ({"dtype": "torch.float64"}, "do not fit together"),
        ({"segments": None}, "list of segments"),
        ({"segments": [{"file": "../../etc/passwd", "patterns": 3, "removed": None}]}, "list of segments"),
        ({"state": None}, "list of segments"),
    ],
)
def test_damaged_descriptions_are_refused(tmp_path, change, message):
    HopfieldMemory(normal(600, 8)).save(tmp_path)
    manifest = json.loads((tmp_path / "memory.json").read_text())
    (tmp_path / "memory.json").write_text(json.dumps(manifest | change))
    with pytest.raises(ValueError, match=message):
        HopfieldMemory.load(tmp_path)
    (tmp_path / "memory.json").write_text("{")
    with pytest.raises(ValueError, match="is damaged"):
        HopfieldMemory.load(tmp_path)
