import json
import subprocess
import sys

import pytest
from transformers import AutoModelForCausalLM

from hf_sparse_hopfield import __version__
from hf_sparse_hopfield.cli import main
from hf_sparse_hopfield.demo_text import TEXT


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    directory = tmp_path_factory.mktemp("demo") / "out"
    assert main(["demo", "--steps", "12", "--output_dir", str(directory)]) == 0
    return directory


def test_demo(demo, capsys):
    for name in ("digits.png", "heads.png", "associations.png"):
        assert (demo / name).stat().st_size > 1000
    model = AutoModelForCausalLM.from_pretrained(demo / "model")
    assert type(model).__name__ == "SparseHopfieldLlamaForCausalLM"
    assert main(["demo", "--output_dir", str(demo)]) == 1
    assert "--overwrite" in capsys.readouterr().err


def test_inspect(demo, tmp_path, capsys):
    (tmp_path / "text.txt").write_text(TEXT)
    arguments = ["inspect", str(demo / "model"), "--text", str(tmp_path / "text.txt"), "--length", "32"]
    pictures = ["--png", str(tmp_path / "heads.png"), "--html", str(tmp_path / "report.html")]
    assert main([*arguments, *pictures]) == 0
    printed = capsys.readouterr().out
    assert "of the visible keys get weight" in printed and "dead heads" in printed
    assert (tmp_path / "heads.png").exists() and (tmp_path / "report.html").exists()
    assert main([*arguments, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert len(report["layers"]["model.layers.0.self_attn"]["support"]) == 4
    assert main(["inspect", str(demo / "model"), "--heads", "--batches", "1", "--length", "16"]) == 0
    assert main(["inspect", str(demo / "model"), "--batches", "0"]) == 1
    assert "--batches" in capsys.readouterr().err


def test_errors_have_no_traceback_unless_asked(capsys):
    assert main(["demo", "--steps", "0"]) == 1
    assert capsys.readouterr().err == "error: steps must be at least 5, got 0.\n"
    with pytest.raises(ValueError, match="steps"):
        main(["--debug", "demo", "--steps", "0"])
    with pytest.raises(SystemExit) as stop:
        main(["demo", "--nonsense"])
    assert stop.value.code == 2


def test_command():
    done = subprocess.run(
        [sys.executable, "-m", "hf_sparse_hopfield.cli", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == __version__
    done = subprocess.run(
        [sys.executable, "-m", "hf_sparse_hopfield.cli"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
