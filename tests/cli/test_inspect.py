# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import json
import math
import re

import pytest
import torch
from transformers import AutoModelForCausalLM

from hf_sparse_hopfield.cli import main
from hf_sparse_hopfield.demo import make_tokenizer
from hf_sparse_hopfield.demo.text import TEXT


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
    page = (tmp_path / "report.html").read_text()
    assert "<h1>Heads of model</h1>" in page and page.count('id="rows-sparse-') == 2
    assert main([*arguments, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert len(report["layers"]["model.layers.0.self_attn"]["support"]) == 4
    assert main(["inspect", str(demo / "model"), "--heads", "--batches", "1", "--length", "16"]) == 0
    assert "random inputs" in capsys.readouterr().err
    assert main(["inspect", str(demo / "model"), "--quiet", "--batches", "1", "--length", "16"]) == 0
    assert capsys.readouterr().err == ""
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


def test_inspect_on_a_prompt(demo, tmp_path, capsys):
    command = ["inspect", str(demo / "model"), "--html", str(tmp_path / "page.html")]
    assert main([*command, "--prompt", "the people of the nation"]) == 0
    printed = capsys.readouterr()
    assert "written: " in printed.out and "random" not in printed.err and "loss" not in printed.out
    assert '"labels":[" the"," people"," of"," the"," nation"]' in (tmp_path / "page.html").read_text()
    assert main([*command, "--prompt", "the people", "--random"]) == 1
    assert "--prompt and --random are two things to run on" in capsys.readouterr().err
    assert main([*command, "--image", "no.png"]) == 1
    assert "--image 'no.png' is not a file" in capsys.readouterr().err
