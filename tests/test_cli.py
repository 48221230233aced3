import subprocess
import sys

import pytest
from safetensors.torch import load_file

from hf_sparse_hopfield import __version__
from hf_sparse_hopfield.cli import main


def test_demo(tmp_path, capsys):
    directory = tmp_path / "demo"
    assert main(["demo", "--epochs", "1", "--output_dir", str(directory)]) == 0
    printed = capsys.readouterr().out
    assert "recalled exactly" in printed
    assert "equal outputs after reloading: True" in printed
    assert (directory / "digits.png").stat().st_size > 1000
    assert load_file(directory / "bag_classifier.safetensors")
    assert main(["demo", "--output_dir", str(directory)]) == 1
    assert "--overwrite" in capsys.readouterr().err


def test_errors_have_no_traceback_unless_asked(capsys):
    assert main(["demo", "--epochs", "0"]) == 1
    assert capsys.readouterr().err == "error: epochs must be at least 1, got 0.\n"
    with pytest.raises(ValueError, match="epochs"):
        main(["--debug", "demo", "--epochs", "0"])


def test_command():
    done = subprocess.run(
        [sys.executable, "-m", "hf_sparse_hopfield.cli", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == __version__
    done = subprocess.run(
        [sys.executable, "-m", "hf_sparse_hopfield.cli"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
