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
from hf_sparse_hopfield.files import (
    WRITTEN_FILE,
    check_output,
    check_writable,
    new_directory,
    new_file,
    rewrite_text,
    write_json,
    write_text,
)

from .leftovers import leftovers


def test_an_old_directory_survives_a_failure(tmp_path, monkeypatch):
    with new_directory(tmp_path / "out") as directory:
        (directory / "precious").write_text("kept")
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
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"new", WRITTEN_FILE}
    assert leftovers(tmp_path) == []
    with pytest.raises(FileExistsError, match="overwrite"), new_directory(tmp_path / "out"):
        pass


@pytest.mark.parametrize("overwrite", [True, False])
def test_what_appears_in_the_meantime_is_not_replaced(overwrite, tmp_path):
    with (
        pytest.raises(FileExistsError, match="did not write.*: precious" if overwrite else "--overwrite"),
        new_directory(tmp_path / "out", overwrite) as directory,
    ):
        (directory / "new").write_text("whole")
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "precious").write_text("kept")
    assert (tmp_path / "out" / "precious").read_text() == "kept" and leftovers(tmp_path) == []


def write_letter(directory):
    with new_directory(directory) as new:
        (new / "letters").mkdir()
        (new / "letters" / "a").write_text("dear")
        (new / "card").write_text("to NAME")


def test_only_what_was_written_here_is_replaced(tmp_path):
    out = tmp_path / "out"
    write_letter(out)
    for name in ("thesis.tex", "letters/b", ".hidden", "link"):
        (out / name).write_text("years of work") if name != "link" else (out / name).symlink_to(tmp_path)
        with pytest.raises(FileExistsError, match=f"did not write, or that have changed since: {name}\\."):
            check_output(out, overwrite=True)
        (out / name).unlink()
    (out / "empty").mkdir()  # there is nothing to lose
    check_output(out, overwrite=True)
    (out / "letters" / "a").write_text("DEAR")
    with pytest.raises(FileExistsError, match="changed since: letters/a"):
        check_output(out, overwrite=True)
    (out / WRITTEN_FILE).write_text("[broken")
    with pytest.raises(FileExistsError, match="card, letters/a"), new_directory(out, overwrite=True):
        pass
    for number in range(20):
        (out / f"{number:02}").touch()
    with pytest.raises(FileExistsError, match="00, 01, 02, 03, 04, \\.\\.\\.\\. Only"):
        check_output(out, overwrite=True)


def test_a_file_that_we_rewrite_is_still_ours(tmp_path):
    write_letter(tmp_path / "out")
    rewrite_text(tmp_path / "out" / "card", "to me")
    check_output(tmp_path / "out", overwrite=True)
    (tmp_path / "out" / "card").write_text("by hand")
    rewrite_text(tmp_path / "out" / "card", "by hand, to me")
    with pytest.raises(FileExistsError, match="changed since: card"):
        check_output(tmp_path / "out", overwrite=True)
    (tmp_path / "elsewhere").write_text("a")
    rewrite_text(tmp_path / "elsewhere", "b")
    assert (tmp_path / "elsewhere").read_text() == "b" and leftovers(tmp_path) == []


def test_what_cannot_be_written_is_refused_at_once(tmp_path):
    (tmp_path / "file").write_text("x")
    for output, match in (
        (tmp_path / "file" / "out", "cannot be written: Not a directory"),
        (tmp_path / "file" / "new" / "out", "cannot be written: Not a directory"),
        (tmp_path / "new" / ("x" * 250), "cannot be written: File name too long"),
        (tmp_path / ("x" * 300) / "out", "cannot be written: File name too long"),
    ):
        with pytest.raises(OSError, match=match):
            check_output(output, overwrite=True)
        with pytest.raises(OSError, match=match):
            check_writable(output)
    with pytest.raises(OSError, match="cannot be written"):
        check_output("/proc/nobody/writes/here", overwrite=True)
    with pytest.raises(NotADirectoryError, match="is a file; it must be a directory"):
        check_output(tmp_path / "file", overwrite=False)
    check_output(tmp_path / "new" / "folder" / "out", overwrite=False)
    check_writable("/dev/stdout")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_mount_point_and_a_protected_directory_are_refused_at_once(tmp_path, monkeypatch):
    """The volume of a container; and a directory whose permissions forbid to rename it, which root may ignore."""
    with pytest.raises(OSError, match="is a mount point, which cannot be replaced"):
        check_output("/dev/shm" if os.path.ismount("/dev/shm") else "/", overwrite=True)
    (tmp_path / "out").mkdir()
    monkeypatch.setattr(files.os, "access", lambda path, mode: False)
    with pytest.raises(PermissionError, match="write-protected"):
        check_output(tmp_path / "out", overwrite=True)


def test_links_to_the_output(tmp_path):
    write_letter(tmp_path / "real")
    (tmp_path / "link").symlink_to("real")
    with new_directory(tmp_path / "link", overwrite=True) as directory:
        (directory / "new").write_text("whole")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real" / "new").exists()
    (tmp_path / "dangling").symlink_to("far/away")
    with new_directory(tmp_path / "dangling") as directory:
        (directory / "new").write_text("whole")
    assert (tmp_path / "far" / "away" / "new").exists()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="leads to itself"):
        check_output(tmp_path / "loop", overwrite=True)
    (tmp_path / "source").mkdir()
    (tmp_path / "to_source").symlink_to("source")
    with pytest.raises(ValueError, match="is the source"):
        check_output(tmp_path / "to_source", overwrite=True, source=tmp_path / "source")


def test_directories_made_on_the_way_go_if_it_fails(tmp_path):
    with pytest.raises(RuntimeError), new_directory(tmp_path / "a" / "b" / "out"):
        raise RuntimeError
    with pytest.raises(RuntimeError), new_file(tmp_path / "a" / "b" / "file"):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_who_is_faster_wins(tmp_path, monkeypatch):
    """Another process writes the same directory between the last check and the rename."""
    replace = os.replace

    def overtaken(old, new):
        if Path(new) == tmp_path / "out":
            monkeypatch.undo()
            write_letter(tmp_path / "out")
        replace(old, new)

    monkeypatch.setattr(files.os, "replace", overtaken)
    with pytest.raises(FileExistsError, match="already exists"), new_directory(tmp_path / "out") as directory:
        (directory / "mine").write_text("late")
    assert (tmp_path / "out" / "card").exists() and leftovers(tmp_path) == []


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
