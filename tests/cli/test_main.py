# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import contextlib
import io
import json
import math
import re
import subprocess
import sys

import pytest
import torch
from transformers import AutoModelForCausalLM

from hf_sparse_hopfield import __version__
from hf_sparse_hopfield.cli.main import COMMANDS, main, run_safely
from hf_sparse_hopfield.demo import make_tokenizer
from hf_sparse_hopfield.demo.text import TEXT


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    directory = tmp_path_factory.mktemp("demo") / "out"
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert main(["--json", "demo", "--steps", "12", "--output_dir", str(directory)]) == 0
    result = json.loads(printed.getvalue())  # and nothing else
    assert [row["memory"][:6] for row in result["digits"]] == ["sparse", "entmax", "dense,"]
    assert len(result["models"]) == 5 and result["equal_after_reloading"] is True
    return directory


def test_demo(demo, capsys):
    for name in ("digits.png", "heads.png", "associations.png"):
        assert (demo / name).stat().st_size > 1000
    model = AutoModelForCausalLM.from_pretrained(demo / "model")
    assert type(model).__name__ == "SparseHopfieldLlamaForCausalLM"
    assert main(["demo", "--output_dir", str(demo)]) == 1
    assert "--overwrite" in capsys.readouterr().err
    assert main(["demo", "--output_dir", str(demo.parent), "--overwrite"]) == 1
    assert "has no model/config.json" in capsys.readouterr().err


def test_inspect(demo, tmp_path, capsys):
    (tmp_path / "text.txt").write_text(TEXT)
    arguments = ["inspect", str(demo / "model"), "--text", str(tmp_path / "text.txt"), "--length", "32"]
    pictures = ["--png", str(tmp_path / "heads.png"), "--html", str(tmp_path / "report.html")]
    assert main([*arguments, *pictures]) == 0
    printed = capsys.readouterr().out
    assert "of the visible keys get weight" in printed and "dead heads" in printed
    assert (tmp_path / "heads.png").read_bytes().startswith(b"\x89PNG")
    loss, perplexity = re.search(r"loss ([\d.]+), perplexity ([\d.]+)", printed).groups()
    assert float(perplexity) == pytest.approx(math.exp(float(loss)), rel=1e-3)
    assert (tmp_path / "heads.png").exists() and (tmp_path / "report.html").exists()
    assert main([*arguments, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert len(report["layers"]["model.layers.0.self_attn"]["support"]) == 4
    assert main(["inspect", str(demo / "model"), "--heads", "--batches", "1", "--length", "16"]) == 0
    assert "random inputs" in capsys.readouterr().err
    assert main(["inspect", str(demo / "model"), "--alpha", "1.5"]) == 1
    assert "--alpha 1.5 is for dense checkpoints" in capsys.readouterr().err
    assert main(["inspect", str(demo / "model"), "--batches", "0"]) == 1
    assert "--batches" in capsys.readouterr().err
    assert main(["inspect", str(demo / "model"), "--png", str(tmp_path / "no" / "heads.png")]) == 1
    assert "no directory" in capsys.readouterr().err
    assert main(["inspect", str(demo / "model"), "--batches", "all"]) == 1
    assert "--text" in capsys.readouterr().err


def test_inspect_gives_the_loss_of_a_whole_text(demo, tmp_path, capsys):
    (tmp_path / "text.txt").write_text(TEXT)
    arguments = [str(demo / "model"), "--text", str(tmp_path / "text.txt"), "--length", "32", "--batches", "all"]
    assert main(["inspect", *arguments, "--json"]) == 0
    loss = json.loads(capsys.readouterr().out)["loss"]
    model = AutoModelForCausalLM.from_pretrained(demo / "model").eval()
    tokens = torch.tensor(make_tokenizer()(TEXT)["input_ids"])
    windows = tokens[: len(tokens) // 32 * 32].view(-1, 32)
    with torch.no_grad():
        expected = model(input_ids=windows, labels=windows).loss.item()
    assert loss == pytest.approx(expected, rel=1e-4)


def test_errors_have_no_traceback_unless_asked(capsys):
    assert main(["demo", "--steps", "0"]) == 1
    assert capsys.readouterr().err == "error: steps must be at least 5, got 0.\n"
    with pytest.raises(ValueError, match="steps"):
        main(["--debug", "demo", "--steps", "0"])
    with pytest.raises(SystemExit) as stop:
        main(["demo", "--nonsense"])
    assert stop.value.code == 2


class Panic(BaseException):
    """As compiled code raises it."""


@pytest.mark.parametrize(
    "error", [AttributeError("no such"), ZeroDivisionError(), KeyError("x"), Panic("core dumped")]
)
def test_no_error_shows_a_traceback(error, capsys):
    def fail():
        raise error

    assert run_safely(fail, debug=False) == 1
    message = capsys.readouterr().err
    assert message.startswith(f"error: {type(error).__name__}") and "--debug" in message and message.count("\n") == 1
    with pytest.raises(type(error)):
        run_safely(fail, debug=True)


def test_an_interruption_has_its_own_code(capsys):
    def interrupt():
        raise KeyboardInterrupt

    assert run_safely(interrupt, debug=False) == 130
    assert capsys.readouterr().err == "interrupted\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_knows_the_global_options(command, monkeypatch):
    seen = []
    monkeypatch.setattr(COMMANDS[command], "run", lambda arguments: seen.append((arguments.debug, arguments.json)))
    paths = {"convert": ["a", "b"], "calibrate": ["a", "b"], "inspect": ["a"]}.get(command, [])
    for argv in (
        [command, *paths],
        ["--json", "--debug", command, *paths],
        [command, *paths, "--json", "--debug"],
        ["--debug", command, *paths, "--json"],
    ):
        assert main(argv) == 0
    assert seen == [(False, False), (True, True), (True, True), (True, True)]


def test_command():
    done = subprocess.run(
        [sys.executable, "-m", "hf_sparse_hopfield.cli", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == __version__
    done = subprocess.run(
        [sys.executable, "-m", "hf_sparse_hopfield.cli"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
