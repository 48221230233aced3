# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""What the package does with nothing but its own dependencies, and without a compiler: it imports, retrieves, converts, trains.

Run by `.ci/package`, away from the source tree. `--without_core REASON` is for an installation that has no compiled core.
"""

import argparse
import json
import shutil
import subprocess
import tempfile
from importlib.metadata import files
from importlib.resources import files as resources
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

import hf_sparse_hopfield
from hf_sparse_hopfield import calibrate, retrieve
from hf_sparse_hopfield.backends.native import library
from hf_sparse_hopfield.demo.echoes import Echoes, make_tokenizer
from hf_sparse_hopfield.demo.text import TEXT
from hf_sparse_hopfield.metrics import load_metric


COMPILERS = ("cc", "gcc", "c++", "g++", "clang", "clang++")
PAGE = ("page.html", "explorer.css", "explorer.js")


def main() -> None:
    """Run everything; the first failure ends it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--without_core", metavar="REASON", help="there is no core, and this is a part of what is said about it"
    )
    arguments = parser.parse_args()
    found = [name for name in COMPILERS if shutil.which(name)]
    assert not found, f"compilers are on PATH: {found}"
    check_files()
    check_core(arguments.without_core)
    with tempfile.TemporaryDirectory() as scratch:
        check_conversion_and_training(Path(scratch))
        check_commands(Path(scratch))
    print("all of it works in", Path(hf_sparse_hopfield.__file__).parent)


def check_files() -> None:
    """What a wheel can lack although the package imports."""
    package = Path(hf_sparse_hopfield.__file__).parent
    assert not package.is_relative_to(Path(__file__).resolve().parents[1]), f"imported from the source tree {package}"
    assert resources("hf_sparse_hopfield").joinpath("py.typed").is_file(), "no py.typed"
    for name in PAGE:
        assert resources("hf_sparse_hopfield.diagnostics.explorer").joinpath(name).is_file(), f"no {name}"
    assert any(file.name == "LICENSE" for file in files("hf-sparse-hopfield") or ()), "no LICENSE"
    assert load_metric("f1").compute(predictions=[1, 0], references=[1, 1])["f1"] == 2 / 3, "no metrics"


def check_core(without: str | None) -> None:
    """Every instruction set of the core that this processor has gives what the definition gives."""
    patterns = torch.randn(3, 1, 2, 40, 16)
    expected = retrieve(*patterns, alpha=1.5, backend="reference")
    torch.testing.assert_close(retrieve(*patterns, alpha=1.5), expected, atol=1e-5, rtol=1e-5)
    if without is not None:
        assert library.missing is not None and without in library.missing, library.missing
        print("no core:", library.missing)
        return
    assert library.missing is None, library.missing
    used = {library.limit_level(number) for number in range(len(library.LEVELS))}
    for name in sorted(used):
        library.limit_level(library.LEVELS.index(name))
        torch.testing.assert_close(retrieve(*patterns, alpha=1.5, backend="native"), expected, atol=1e-5, rtol=1e-5)
    library.limit_level(-1)
    print("the core runs with", ", ".join(sorted(used)))


def check_conversion_and_training(scratch: Path) -> None:
    """Calibrate, generate, save, load, fine-tune; leaves a dense checkpoint and a text for the commands."""
    tokenizer = make_tokenizer()
    data = Echoes(torch.tensor(tokenizer(TEXT)["input_ids"]), 64, seed=0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(**sizes, vocab_size=len(tokenizer), bos_token_id=None, eos_token_id=None))
    model.save_pretrained(scratch / "dense")
    tokenizer.save_pretrained(scratch / "dense")
    (scratch / "text.txt").write_text(TEXT, encoding="utf-8")

    model, report = calibrate(
        model, data.batches()[:3], alpha=1.5, objective="support", target_support=0.3, progress=False
    )
    assert 0 < report.mean("support") < 0.5, report.mean("support")
    prompt = {"input_ids": data.input_ids[:1, :8]}
    assert model.generate(**prompt, max_new_tokens=4, do_sample=False).shape == (1, 12)
    model.save_pretrained(scratch / "sparse")
    loaded = AutoModelForCausalLM.from_pretrained(scratch / "sparse").eval()
    with torch.no_grad():
        assert torch.equal(loaded(**prompt).logits, model.eval()(**prompt).logits), "not the same after loading"

    steps = TrainingArguments(
        output_dir=str(scratch / "run"),
        max_steps=20,
        learning_rate=1e-2,
        logging_steps=5,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(loaded, steps, train_dataset=data)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses[-1] < losses[0] - 0.1, losses


def check_commands(scratch: Path) -> None:
    """The commands that need no extra."""
    environment = json.loads(run("env", "--json"))
    assert environment["backends"]["cpu"]["native"] is None or library.missing, environment["backends"]
    assert "compiled core" in run("env")
    run(
        "convert",
        "dense",
        "converted",
        "--alpha",
        "1.5",
        "--text",
        "text.txt",
        "--length",
        "32",
        "--quiet",
        cwd=scratch,
    )
    assert (scratch / "converted" / "config.json").is_file()
    assert "keys" in run("inspect", "converted", "--text", "text.txt", "--length", "32", "--quiet", cwd=scratch)


def run(*words: str, cwd: Path | None = None) -> str:
    """Run a command of `hf-sparse-hopfield`; returns what it prints."""
    done = subprocess.run(["python", "-m", "hf_sparse_hopfield.cli", *words], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout


if __name__ == "__main__":
    main()
