# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import json
import os
import re

from hf_sparse_hopfield.cli import main


def test_push_uploads_what_was_written(source, tmp_path, monkeypatch, capsys):
    pushed = []

    def push_folder(folder, repo_id, private):
        pushed.append((repo_id, private, sorted(os.listdir(folder))))
        return "https://hub/commit"

    monkeypatch.setattr("hf_sparse_hopfield.hub.push.push_folder", push_folder)
    arguments = [str(source), str(tmp_path / "out"), "--push_to_hub", "me/mine", "--private", "--json"]
    assert main(["convert", *arguments]) == 0
    assert json.loads(capsys.readouterr().out)["pushed"] == "https://hub/commit"
    assert pushed[0][:2] == ("me/mine", True) and {"README.md", "model.safetensors"} <= set(pushed[0][2])
    arguments = [str(source), str(tmp_path / "two"), "--push_to_hub", "me/mine", "--json"]
    assert main(["convert", *arguments]) == 0 and pushed[1][1] is None  # up to the owner's settings
    for wrong, match in ((["--push_to_hub", "a/b/c"], "a/b/c"), (["--private"], "--push_to_hub")):
        capsys.readouterr()
        assert main(["convert", str(source), str(tmp_path / "three"), *wrong]) == 1
        assert match in capsys.readouterr().err and not (tmp_path / "three").exists()


def test_a_newcomer_reads_what_conversion_cost(source, tmp_path, capsys):
    text = ["--text", str(tmp_path / "text.txt"), "--length", "32", "--batches", "4", "--refine_steps", "2"]
    assert main(["convert", str(source), str(tmp_path / "out"), "--alpha", "2", *text]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"held out: 1 batch of text.txt +dense +sparse", printed)
    assert re.search(r"perplexity \(lower is better\) +\d+\.\d\d +\d+\.\d\d +[+-]\d+\.\d%", printed)
    assert re.search(r"keys used by a query, mean of all heads +100% +\d+\.\d%", printed)
    assert "loaded again and compared with the model in memory: equal outputs." in printed
    assert main(["convert", str(tmp_path / "out"), str(tmp_path / "again"), "--to_dense"]) == 0
    assert f"{tmp_path / 'again'}: LlamaForCausalLM\n" in capsys.readouterr().out
