# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hf_sparse_hopfield import files
from hf_sparse_hopfield.files import check_output, new_directory, new_file, write_json, write_text

from .leftovers import leftovers


def test_an_old_directory_survives_a_failure(tmp_path, monkeypatch):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "config.json").write_text("{}")
    (tmp_path / "out" / "precious").write_text("kept")
    with pytest.raises(RuntimeError), new_directory(tmp_path / "out", overwrite=True) as directory:
        (directory / "half").write_text("done")
        raise RuntimeError
    assert (tmp_path / "out" / "precious").read_text() == "kept"

    replace = os.replace

    def failing(old, new):  # the second of the two renames
        if Path(new) == tmp_path / "out" and Path(old).name == "out":
            raise OSError(5, "Input/output error")
        replace(old, new)

    monkeypatch.setattr(files.os, "replace", failing)
    with pytest.raises(OSError, match="Input/output"), new_directory(tmp_path / "out", overwrite=True):
        pass
    monkeypatch.undo()
    assert (tmp_path / "out" / "precious").read_text() == "kept" and leftovers(tmp_path) == []
    with new_directory(tmp_path / "out", overwrite=True) as directory:
        (directory / "new").write_text("whole")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["new"]
    assert leftovers(tmp_path) == []
    with pytest.raises(FileExistsError, match="overwrite"), new_directory(tmp_path / "out"):
        pass


@pytest.mark.parametrize("overwrite", [True, False])
def test_what_appears_in_the_meantime_is_not_replaced(overwrite, tmp_path):
    with (
        pytest.raises(FileExistsError, match="no config.json" if overwrite else "--overwrite"),
        new_directory(tmp_path / "out", overwrite) as directory,
    ):
        (directory / "new").write_text("whole")
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "precious").write_text("kept")
    assert (tmp_path / "out" / "precious").read_text() == "kept" and leftovers(tmp_path) == []


def test_what_kill_leaves_is_cleared_up_by_the_next_run(tmp_path, capsys):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with new_directory(tmp_path / "out") as directory:
            (directory / "half").write_text("done")
            os.write(writer, b".")
            time.sleep(600)
    os.read(reader, 1)
    with new_directory(tmp_path / "out") as directory:  # the other one is alive: it keeps what it has
        (directory / "config.json").write_text("{}")
    assert len(leftovers(tmp_path)) == 1
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert len(leftovers(tmp_path)) == 1
    with pytest.raises(FileExistsError):
        check_output(tmp_path / "out", overwrite=False)
    assert leftovers(tmp_path) == [] and "interrupted run" in capsys.readouterr().err

    # killed between the two renames: the directory that was being replaced comes back, and is not replaced unasked
    (tmp_path / ".out.partial-x").mkdir()
    os.replace(tmp_path / "out", tmp_path / ".out.partial-x" / ".old")
    with pytest.raises(FileExistsError), new_directory(tmp_path / "out"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_file_is_complete_or_not_there(tmp_path):
    with pytest.raises(RuntimeError), new_file(tmp_path / "a.png") as file:
        assert file.suffix == ".png"  # writers that choose a format by the suffix keep working
        file.write_text("half")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    write_text(tmp_path / "a.png", "old")
    with pytest.raises(RuntimeError), new_file(tmp_path / "a.png") as file:
        file.write_text("half")
        raise RuntimeError
    assert (tmp_path / "a.png").read_text() == "old"
    write_text(tmp_path / "a.png", "ä")
    assert (tmp_path / "a.png").read_bytes() == "ä".encode() and leftovers(tmp_path) == []
    write_text(tmp_path / "new" / "folder" / "a.png", "there")
    assert (tmp_path / "new" / "folder" / "a.png").read_text() == "there"


def test_a_file_has_the_permissions_of_any_new_file_and_links_stay(tmp_path):
    (tmp_path / "plain").write_text("")
    (tmp_path / "link").symlink_to("target")
    write_text(tmp_path / "link", "through")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "target").read_text() == "through"
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("plain", "target")]
    assert modes[0] == modes[1]
    (tmp_path / "folder").mkdir()
    with new_directory(tmp_path / "new"):
        pass
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("folder", "new")]
    assert modes[0] == modes[1]


def test_a_file_that_kill_leaves_is_cleared_up_by_the_next_run(tmp_path, capsys):
    (tmp_path / ".state.partial-x").mkdir()
    (tmp_path / ".state.partial-x" / "state").write_text("half")
    write_text(tmp_path / "state", "whole")
    assert [path.name for path in tmp_path.iterdir()] == ["state"]
    assert "left by an interrupted run" in capsys.readouterr().err


def test_two_writers_of_one_file_do_not_disturb_each_other(tmp_path):
    with new_file(tmp_path / "a") as first, new_file(tmp_path / "a") as second:
        first.write_text("first")
        second.write_text("second")
    assert (tmp_path / "a").read_text() == "first" and leftovers(tmp_path) == []


def test_an_existing_file_keeps_its_permissions(tmp_path):
    path = tmp_path / "secret.json"
    path.write_text("{}")
    path.chmod(0o600)
    write_json(path, {"a": 1})
    assert json.loads(path.read_text()) == {"a": 1} and path.stat().st_mode & 0o777 == 0o600


def test_pipes_are_written_to_and_not_replaced(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    received = []
    reader = threading.Thread(target=lambda: received.append(path.read_text()))
    reader.start()
    write_text(path, "through the pipe")
    reader.join()
    assert received == ["through the pipe"] and stat.S_ISFIFO(path.stat().st_mode)


def test_standard_output_is_written_to_when_it_is_a_file(tmp_path):
    with (tmp_path / "log").open("w") as log:
        code = "print('first', flush=True); from hf_sparse_hopfield.files import write_text; write_text('/dev/stdout', 'x')"
        subprocess.run([sys.executable, "-c", code], stdout=log, check=True)
        log.write("y")
    assert (tmp_path / "log").stat().st_nlink == 1 and list(tmp_path.iterdir()) == [tmp_path / "log"]
    assert "y" in (tmp_path / "log").read_text()  # the same file is still open


def test_a_directory_is_refused(tmp_path):
    with pytest.raises(IsADirectoryError, match="must be a file"):
        write_text(tmp_path, "x")
