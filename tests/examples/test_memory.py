# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The examples of associative memories: sentences, in one process and in two, and digits."""

import importlib
import json
import os
import subprocess

import pandas as pd
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from ..training.launch import in_two_processes
from .conftest import EXAMPLES


TOPICS = ("war", "ball", "bank", "atom")


def write_texts(folder):
    """News whose topic is in one word, and reviews whose sentiment is."""
    news = [(1 + n % 4, f"{TOPICS[n % 4]} number {n}", f"more of {TOPICS[n % 4]}") for n in range(80)]
    reviews = [("train", n % 2, f"a {('bad', 'good')[n % 2]} film {n}") for n in range(60)]
    (folder / "text").mkdir()
    pd.DataFrame(news).to_csv(folder / "text" / "ag_news_test.csv.gz", header=False, index=False)
    table = pd.DataFrame(reviews, columns=["split", "label", "text"])
    table.to_csv(folder / "text" / "imdb_6k.csv.gz", index=False)
    return [f"{title} {text}" for _, title, text in news] + [text for *_, text in reviews]


def write_encoder(folder, texts):
    """A tiny encoder with random weights and a tokenizer of words."""
    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(texts, trainers.WordLevelTrainer(special_tokens=["[PAD]", "[UNK]"]))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]").save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    BertModel(BertConfig(vocab_size=tokenizer.get_vocab_size(), **sizes)).save_pretrained(folder)


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES / "memory"))
    return importlib.import_module


def test_sentences(example, tmp_path):
    write_encoder(tmp_path / "model", write_texts(tmp_path))
    arguments = ["--model", tmp_path / "model", "--data_dir", tmp_path, "--output_dir", tmp_path / "out"]
    arguments = [*map(str, arguments), "--query", "ball number", "a good film"]
    results = example("sentences").main(arguments)
    ball, good = results["queries"]
    assert ball["found"][0]["label"] == "sport" and good["found"][0]["label"] == "1"
    assert 0 < results["news_memory"] <= 1 and results["mean_support"] < results["stored"]
    # once more from disk, and in two processes: the same texts
    again = example("sentences").main(arguments)
    assert again["queries"] == results["queries"]
    launch = in_two_processes(EXAMPLES / "accelerate_configs" / "cpu_multi_process.yaml")
    command = [*launch, str(EXAMPLES / "memory" / "sentences.py"), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "in 2 process(es)" in done.stdout
    sharded = json.loads((tmp_path / "out" / "sentences-2.json").read_text())
    for one, two in zip(results["queries"], sharded["queries"], strict=True):
        assert [match["row"] for match in one["found"]] == [match["row"] for match in two["found"]]
        for first, second in zip(one["found"], two["found"], strict=True):
            assert abs(first["weight"] - second["weight"]) < 1e-3


def test_digits(example, tmp_path, capsys):
    results = example("digits").main(["--quick", "--output_dir", str(tmp_path), "--queries", "50"])["results"]
    without_noise = {record["memory"]: record for record in results if record["noise"] == 0}
    assert without_noise["sparsemax"]["right"] == 1 and without_noise["entmax 1.5"]["exact"] > 0.9
    assert (tmp_path / "digits.png").is_file() and json.loads((tmp_path / "digits.json").read_text()) == results
    with pytest.raises(SystemExit):
        example("digits").main(["--output_dir", str(tmp_path)])
    assert "--data_dir is missing" in capsys.readouterr().err
