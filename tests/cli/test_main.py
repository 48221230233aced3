# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import subprocess
import sys

import pytest

from hf_sparse_hopfield import __version__
from hf_sparse_hopfield.cli.main import COMMANDS, main, run_safely


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


@pytest.mark.parametrize("module", ["hf_sparse_hopfield.cli.convert", "argparse"])
def test_an_interruption_while_modules_load_has_no_traceback(module):
    """Of the package itself; before that, Python's own start is out of our hands."""
    code = f"""
import sys
import hf_sparse_hopfield
class Interrupted:
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt
sys.modules.pop({module!r}, None)
sys.meta_path.insert(0, Interrupted())
from hf_sparse_hopfield.cli import main
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


def test_an_interruption_while_arguments_are_read_has_no_traceback(monkeypatch, capsys):
    def interrupt():
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["hf_sparse_hopfield.cli.main"], "make_parser", interrupt)
    assert main([]) == 130 and capsys.readouterr().err == "interrupted\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_knows_the_global_options(command, monkeypatch):
    seen = []
    monkeypatch.setattr(
        COMMANDS[command], "run", lambda arguments: seen.append((arguments.debug, arguments.json, arguments.quiet))
    )
    paths = {
        "convert": ["a", "b"],
        "calibrate": ["a", "b"],
        "inspect": ["a"],
        "compare": ["a", "b", "--task", "fill-mask", "--data", "c"],
        "completion": ["zsh"],
    }.get(command, [])
    for argv in (
        [command, *paths],
        ["--json", "--debug", "--quiet", command, *paths],
        [command, *paths, "--json", "--quiet", "--debug"],
        ["--debug", command, *paths, "--json", "--quiet"],
    ):
        assert main(argv) == 0
    assert seen == [(False,) * 3, *[(True,) * 3] * 3]


def test_command():
    done = subprocess.run(
        [sys.executable, "-m", "hf_sparse_hopfield.cli", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == __version__
    done = subprocess.run(
        [sys.executable, "-m", "hf_sparse_hopfield.cli"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2


@pytest.mark.parametrize("command", ["convert", "calibrate", "inspect", "compare"])
def test_help_explains_the_terms_of_the_tables(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    terms = capsys.readouterr().out.partition("\nterms:\n")[2]
    assert stop.value.code == 0
    for term in ("alpha", "beta", "support", "entropy", "dead head", "perplexity"):
        assert f"\n  {term}  " in f"\n{terms}"


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)])
def test_help_does_not_wait_for_torch(command):
    code = f"""
import sys
from hf_sparse_hopfield.cli import main
try:
    main({[*command, "--help"]})
except SystemExit:
    print("loaded:", *{{"torch", "transformers"}} & sys.modules.keys())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "loaded:"
