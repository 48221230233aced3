# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""A conversion that runs out of room ends with one line that names the place, and leaves nothing half-written."""

import subprocess
from contextlib import contextmanager

import pytest

from hf_sparse_hopfield.cli import main
from hf_sparse_hopfield.files import new_file

from ..leftovers import leftovers


resource = pytest.importorskip("resource")  # Windows has none
_TOO_LARGE = "it needs a larger file than the system allows (`ulimit -f`)"


@contextmanager
def _largest_file(size):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def _small_disk(folder, size):
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("only root can mount a small disk")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def _distilling(source, tmp_path, output, *more):
    options = "--length 16 --batches 2 --search_batches 1 --refine_steps 2 --quiet --no_verify"
    distilling = "--distill --distill_steps 2 --layer_steps 2"
    arguments = ["convert", source, output, "--alpha", "1.5", "--text", tmp_path / "text.txt", *options.split()]
    return list(map(str, [*arguments, *distilling.split(), *more]))


def _error(path, reason):
    return f"error: {str(path)!r} cannot be written: {reason}. Make room or choose another place, and run the command again.\n"


def test_weights_that_find_no_room(source, tmp_path, capsys):
    size = (source / "model.safetensors").stat().st_size
    output = tmp_path / "out"
    with _largest_file(size // 2):
        assert main(["convert", str(source), str(output), "--alpha", "1", "--quiet"]) == 1
    assert capsys.readouterr().err == _error(output, _TOO_LARGE)
    assert not output.exists() and leftovers(tmp_path) == []


@pytest.mark.parametrize(
    ("size", "reason"),
    [
        (16_000, _TOO_LARGE),  # of safetensors
        (50_000, f"the disk is full, or {_TOO_LARGE}"),  # of the optimizer, which torch writes
    ],
)
def test_a_checkpoint_that_finds_no_room_is_removed(source, tmp_path, capsys, size, reason):
    output, kept = tmp_path / "out", tmp_path / "kept"
    with _largest_file(size):
        assert main(_distilling(source, tmp_path, output, "--checkpoints", str(kept))) == 1
    assert capsys.readouterr().err == _error(kept, reason)
    assert list(kept.iterdir()) == [] and not output.exists() and leftovers(tmp_path) == []


@pytest.mark.parametrize("beyond", [-1, 2], ids=["weights", "tokenizer"])
def test_a_full_disk_is_called_that(source, tmp_path, capsys, beyond):
    """The weights find no room, or they do and the tokenizer does not."""
    pages = (source / "model.safetensors").stat().st_size // 4096 + 1 + beyond
    with _small_disk(tmp_path / "disk", pages * 4096):
        output = tmp_path / "disk" / "out"
        assert main(["convert", str(source), str(output), "--alpha", "1", "--quiet", "--no_verify"]) == 1
        assert capsys.readouterr().err == _error(output, "the disk is full")
        assert list((tmp_path / "disk").iterdir()) == []


def test_checkpoints_on_a_full_disk(source, tmp_path, capsys):
    with _small_disk(tmp_path / "disk", 4096):
        output, kept = tmp_path / "out", tmp_path / "disk" / "kept"
        assert main(_distilling(source, tmp_path, output, "--checkpoints", str(kept))) == 1
        assert capsys.readouterr().err == _error(kept, "the disk is full")
        assert list(kept.iterdir()) == [] and not output.exists() and leftovers(tmp_path) == []


def test_other_errors_stay_what_they_are(tmp_path):
    with pytest.raises(ZeroDivisionError), new_file(tmp_path / "file"):
        _ = 1 / 0
