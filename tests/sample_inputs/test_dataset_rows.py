# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import json
import logging

import datasets
import pytest
from datasets import Dataset, DatasetDict

from hf_sparse_hopfield.cli import main
from hf_sparse_hopfield.demo import make_tokenizer
from hf_sparse_hopfield.sample_inputs import dataset_rows, dataset_text

from ..tiny_models import tiny_model


ROWS = [{"label": i, "text": f"row {i}"} for i in range(5)]


@pytest.fixture(params=["jsonl", "csv", "parquet", "folder", "splits"])
def stored(request, tmp_path):
    rows, path = Dataset.from_list(ROWS), tmp_path / f"rows.{request.param}"
    if request.param == "jsonl":
        rows.to_json(path)
    elif request.param == "csv":
        rows.to_csv(path)
    elif request.param == "parquet":
        rows.to_parquet(path)
    elif request.param == "folder":
        rows.save_to_disk(path)
    else:
        DatasetDict(train=rows, test=rows.select([4])).save_to_disk(path)
    return str(path)


def test_rows_are_joined(stored):
    assert dataset_text(stored, characters=10**6) == "row 0\n\nrow 1\n\nrow 2\n\nrow 3\n\nrow 4"
    assert dataset_text(stored, characters=8) == "row 0\n\nrow 1"
    if stored.endswith("splits"):
        assert dataset_text(stored, split="test", characters=10**6) == "row 4"


def test_what_is_missing_is_named(stored, tmp_path):
    with pytest.raises(ValueError, match="no text in a column 'words'; its columns with text are text"):
        dataset_text(stored, column="words", characters=9)
    with pytest.raises(ValueError, match="no text in a column 'label'"):
        dataset_text(stored, column="label", characters=9)
    if stored.endswith("splits"):
        with pytest.raises(ValueError, match="no split 'dev'; it has train, test"):
            dataset_text(stored, split="dev", characters=9)
    (tmp_path / "rows.txt").write_text("words")
    with pytest.raises(ValueError, match="must end in .jsonl"):
        dataset_text(str(tmp_path / "rows.txt"), characters=9)


def test_the_command_line_takes_a_dataset(tmp_path, capsys):
    tokenizer = make_tokenizer()
    tiny_model("llama", vocab_size=len(tokenizer)).save_pretrained(tmp_path / "dense")
    tokenizer.save_pretrained(tmp_path / "dense")
    rows = Dataset.from_list([{"words": f"a b c d e f g h {i}"} for i in range(200)])
    rows.to_json(tmp_path / "rows.jsonl")
    source = ["convert", str(tmp_path / "dense"), str(tmp_path / "sparse"), "--alpha", "2"]
    few = ["--length", "16", "32", "--batches", "4", "--refine_steps", "0", "--json"]
    text = ["--text", f"dataset:{tmp_path / 'rows.jsonl'}"]
    assert main([*source, *text, *few, "--text_column", "words"]) == 0
    assert json.loads(capsys.readouterr().out)["comparison"]["held_out_batches"] >= 1
    assert "rows.jsonl" in (tmp_path / "sparse" / "README.md").read_text()
    assert main([*source, *text, *few, "--overwrite"]) == 1
    assert "no text in a column 'text'; its columns with text are words" in capsys.readouterr().err
    assert main([*source, "--text", "self", *few, "--overwrite", "--split", "train"]) == 1
    assert "--split is for --text dataset:NAME" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl", "rows.parquet", "rows.csv.gz"])
def test_a_damaged_file_is_named(tmp_path, name, capfd):
    (tmp_path / name).write_text('text,label\n"unclosed')
    path, level = str(tmp_path / name), datasets.logging.get_verbosity()
    for read in (lambda: dataset_text(path, characters=9), lambda: dataset_rows(path, count=1)):
        with pytest.raises(
            ValueError, match=f"{name}' cannot be read as {name.split('.')[1].replace('jsonl', 'json')}: "
        ):
            read()
    assert capfd.readouterr().err == "" and datasets.logging.get_verbosity() == level != logging.CRITICAL
