# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The training scripts: their smoke runs, resuming, and what they say of bad data before the first step."""

import gzip
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from datasets import Dataset
from huggingface_hub import ModelCard
from transformers import AutoModelForSeq2SeqLM, AutoModelForSequenceClassification, AutoTokenizer, Trainer

from hf_sparse_hopfield.hub import PushError
from tests.hub.server import WRITE_TOKEN, LoopbackHub

from .conftest import EXAMPLES


def smoke(module, output_dir, *arguments):
    return module.main(["--smoke", "--disable_tqdm", "True", "--output_dir", str(output_dir), *arguments])


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def text_arguments(directory, train, *arguments, validation=None):
    """Arguments for text classification on files that are written here."""
    files = {"train_file": train, "validation_file": validation or [("good", 1), ("bad", 0)]}
    given = []
    for name, rows in files.items():
        path = directory / f"{name}.tsv"
        path.write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows), encoding="utf-8")
        given += [f"--{name}", str(path)]
    fresh = "--model_type bert --vocab_size 270 --config_overrides hidden_size=16,num_hidden_layers=1,num_attention_heads=2"
    options = ["--do_train", "--max_steps", "1", "--output_dir", str(directory / "out"), "--cache_dir", str(directory)]
    return [*given, *fresh.split(), *options, *arguments]


@pytest.mark.parametrize(
    ("name", "metric", "right"),
    [
        ("text_classification", "test_accuracy", lambda value: value > 0.9),
        ("image_classification", "test_accuracy", lambda value: value > 0.9),
        ("translation", "test_bleu_greedy", lambda value: value > 50),
        ("causal_lm", "test_perplexity", lambda value: value < 150),  # a vocabulary of 400
        ("masked_lm", "test_perplexity", lambda value: value < 250),
    ],
)
def test_smoke(script, tmp_path, capsys, name, metric, right):
    summary = smoke(script(name), tmp_path)
    assert right(summary["quality"][metric])
    assert 0 < summary["support"]["share_of_keys"] < 1
    assert summary["speed"]["train_samples_per_second"] > 0
    assert json.loads((tmp_path / "summary.json").read_text(encoding="utf-8")) == summary
    printed = capsys.readouterr().out
    assert all(word in printed for word in ("quality", "share of keys", "samples per second"))
    for split in ("eval", "test"):
        results = read(tmp_path / f"{split}_results.json")
        kept = {key: value for key, value in summary["quality"].items() if key.startswith(split)}
        assert f"{split}_loss" in kept and kept.items() <= results.items()
    card = ModelCard.load(tmp_path / "README.md")
    assert "sparse-hopfield" in card.data.tags and card.data.base_model is None
    assert card.data.library_name == "transformers" and card.data.pipeline_tag == summary["task"]
    assert all(part in card.text for part in ("## How to load", "## Settings", "](support.png)", "--smoke"))
    assert f"| {metric.replace('_', ' ')} | {summary['quality'][metric]:.4f} |" in card.text
    assert "None" not in card.text and "fine-tuned" not in card.text
    assert (tmp_path / "model.safetensors").is_file() and (tmp_path / "support.png").is_file()


def test_from_a_shell_to_the_hub(tmp_path):
    output = tmp_path / "out"
    command = [sys.executable, EXAMPLES / "run_text_classification.py", "--smoke", "--max_steps", "3"]
    command += ["--output_dir", str(output), "--push_to_hub", "--hub_model_id", "me/smoke"]
    with LoopbackHub() as hub:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        environment |= {"HF_ENDPOINT": hub.address, "HF_TOKEN": WRITE_TOKEN, "HF_HUB_DISABLE_XET": "1"}
        environment |= {"HF_HOME": str(tmp_path), "PYTHONPATH": str(EXAMPLES.parent), "NO_PROXY": "127.0.0.1"}
        result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=180)
        assert result.returncode == 0, result.stderr
        files, messages = hub.repositories["me/smoke"].files, hub.repositories["me/smoke"].messages
    assert "SparseHopfieldBertForSequenceClassification, text-classification" in result.stdout
    for name in (
        "model.safetensors",
        "summary.json",
        "eval_results.json",
        "README.md",
        "tokenizer.json",
        "support.png",
    ):
        assert files[name].content == (output / name).read_bytes()
    assert '.from_pretrained("me/smoke")' in (output / "README.md").read_text(encoding="utf-8")
    assert messages.count("End of training") == 1 and "Model save" not in messages
    assert "_experiment.json" not in files


def test_a_push_that_fails_costs_nothing(script, tmp_path, monkeypatch):
    module = script("text_classification")

    def fail(folder, repo_id, *args, **kwargs):
        raise PushError(f"no way to {repo_id}")

    def init_hf_repo(trainer, token=None):
        trainer.hub_model_id = "me/smoke"

    monkeypatch.setattr("training_run.push_folder", fail)
    monkeypatch.setattr(Trainer, "init_hf_repo", init_hf_repo)
    options = ["--push_to_hub", "--save_strategy", "no", "--hub_token", "hf_secret", "--max_steps", "2"]
    with pytest.raises(PushError, match="no way to me/smoke"):
        smoke(module, tmp_path, *options)
    for name in ("summary.json", "eval_results.json", "test_results.json", "README.md", "model.safetensors"):
        content = (tmp_path / name).read_bytes()
        assert content and b"hf_secret" not in content


def test_dense_baseline(script, tmp_path):
    summary = smoke(script("text_classification"), tmp_path, "--max_steps", "3", "--sparse_hopfield", "False")
    assert summary["support"] == {"share_of_keys": 1.0}
    card = ModelCard.load(tmp_path / "README.md")
    assert card.data.tags == ["bert"] and "It is dense" in card.text and "| eval accuracy |" in card.text
    assert "None" not in card.text and "fine-tuned" not in card.text
    assert (
        type(AutoModelForSequenceClassification.from_pretrained(tmp_path)).__name__ == "BertForSequenceClassification"
    )


def test_a_second_run_goes_on_from_the_last_whole_checkpoint(script, tmp_path, caplog):
    module = script("text_classification")
    whole = smoke(module, tmp_path / "whole", "--max_steps", "30")
    options = ("--max_steps", "30", "--save_steps", "10")
    smoke(module, tmp_path / "cut", *options)
    (tmp_path / "cut" / "checkpoint-30" / "trainer_state.json").unlink()  # as a process leaves it that was killed
    weights = tmp_path / "cut" / "checkpoint-20" / "model.safetensors"
    assert weights.is_file()
    caplog.set_level("INFO", "examples")
    again = smoke(module, tmp_path / "cut", *options)
    assert any("checkpoint-20" in record.getMessage() for record in caplog.records if record.name == "examples")
    assert again["quality"] == whole["quality"]
    anew = smoke(module, tmp_path / "cut", *options, "--resume_from_checkpoint", "no", "--seed", "7")
    assert anew["quality"] != whole["quality"]
    assert len(list((tmp_path / "cut").glob("_earlier-*/checkpoint-*"))) == 3


def test_old_checkpoints_are_removed_and_speed_is_that_of_this_run(script, tmp_path):
    module = script("text_classification")
    options = ("--save_steps", "2", "--save_total_limit", "1", "--max_steps")
    smoke(module, tmp_path, *options, "4")
    seen = read(tmp_path / "train_results.json")["num_input_tokens_seen"]
    speed = smoke(module, tmp_path, *options, "8")["speed"]
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-8"]
    results = read(tmp_path / "train_results.json")
    assert results["num_input_tokens_seen"] == read(tmp_path / "trainer_state.json")["num_input_tokens_seen"] > seen
    done = {"steps": 4, "samples": 32, "tokens": results["num_input_tokens_seen"] - seen}
    for what, number in done.items():
        assert speed[f"train_{what}_per_second"] * speed["train_runtime"] == pytest.approx(number, rel=0.01)
    # once more: there is nothing left to train, and the speed is that of the training
    again = smoke(module, tmp_path, *options, "8", "--resume_from_checkpoint", "True")
    assert again["steps"] == 8 and again["speed"] == speed
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-8"]


@pytest.mark.usefixtures("no_step")
class TestAnotherExperiment:
    """Nothing goes on from the checkpoint of another experiment."""

    @pytest.fixture
    def start(self, script, tmp_path):
        module = script("text_classification")
        arguments = text_arguments(tmp_path, [("good", 1), ("bad", 0)] * 4)
        with pytest.raises(AssertionError, match="training was started"):
            module.main(arguments)
        (tmp_path / "out" / "checkpoint-1").mkdir()
        return lambda *more: module.main([*arguments, *more])

    @pytest.mark.parametrize(
        ("option", "value", "message"),
        [
            ("--seed", "7", "seed=42 there and 7 here"),
            ("--alpha", "1.5", "alpha=2.0 there and 1.5 here"),
            ("--sparse_hopfield", "False", "sparse_hopfield=True there and False here"),
            ("--max_train_samples", "3", "max_train_samples=None there and 3 here"),
            ("--vocab_size", "280", "vocab_size=270 there and 280 here"),
        ],
    )
    def test_refused(self, start, tmp_path, option, value, message):
        before = read(tmp_path / "out" / "_experiment.json")
        with pytest.raises(
            ValueError, match=f"another experiment: {message}.*--output_dir.*--resume_from_checkpoint no"
        ):
            start(option, value)
        assert read(tmp_path / "out" / "_experiment.json") == before
        with pytest.raises(AssertionError, match="training was started"):
            start(option, value, "--resume_from_checkpoint", "no")
        assert read(tmp_path / "out" / "_experiment.json") != before
        assert not (tmp_path / "out" / "checkpoint-1").exists()
        assert len(list((tmp_path / "out").glob("_earlier-*/checkpoint-1"))) == 1

    def test_what_may_change(self, start, tmp_path):
        with pytest.raises(AssertionError, match="training was started"):
            start("--max_steps", "3", "--cache_dir", str(tmp_path / "cache"), "--sparsity_logging_steps", "1")

    @pytest.mark.parametrize("asked", ["True", "true", "no/such/checkpoint"])
    def test_a_checkpoint_that_is_not_there(self, start, asked):
        with pytest.raises(ValueError, match=f"resume_from_checkpoint='{asked}': there is no such checkpoint"):
            start("--resume_from_checkpoint", asked)


def test_prediction_alone(script, tmp_path):
    """No training data: classes are those of the model, and support is counted on the test data."""
    module = script("text_classification")
    module.main(text_arguments(tmp_path, [("good", "yes"), ("bad", "no")] * 8, validation=[("good", "yes")]))
    (tmp_path / "test.csv").write_text("text,label\ngood,yes\nfine,yes\n", encoding="utf-8")
    options = ["--model_name_or_path", str(tmp_path / "out"), "--test_file", str(tmp_path / "test.csv")]
    options += ["--output_dir", str(tmp_path / "predicted"), "--cache_dir", str(tmp_path), "--do_predict"]
    summary = module.main(options)
    assert set(summary["quality"]) == {"test_loss", "test_accuracy", "test_macro_f1"} and summary["speed"] == {}
    assert 0 < summary["support"]["share_of_keys"] <= 1
    assert not (tmp_path / "predicted" / "README.md").exists()  # there is no model beside it
    with pytest.raises(ValueError, match=r"--do_eval needs the split 'validation', but the data have only \['test'\]"):
        module.main([*options, "--do_eval"])


def test_processes_that_would_train_alone(script, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match=r"2 processes were launched \(WORLD_SIZE=2\).*--use_cpu"):
        smoke(script("text_classification"), tmp_path)


def test_fine_tuning_what_a_script_has_written(script, tmp_path):
    module = script("translation")
    smoke(module, tmp_path / "first", "--max_steps", "5")
    options = ["--model_name_or_path", str(tmp_path / "first"), "--source_lang", "numbers", "--target_lang", "words"]
    data = module.smoke_data()
    for split, dataset in data.items():
        dataset.to_json(tmp_path / f"{split}.json")
        options += [f"--{split}_file", str(tmp_path / f"{split}.json")]
    options += [
        "--do_train",
        "--max_steps",
        "1",
        "--output_dir",
        str(tmp_path / "second"),
        "--cache_dir",
        str(tmp_path),
    ]
    module.main(options)
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "second")
    assert type(model).__name__ == "SparseHopfieldMarianMTModel"
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "second")
    ids = tokenizer("1 2")["input_ids"]
    assert ids[-1] == tokenizer.eos_token_id
    assert tokenizer.decode(ids, skip_special_tokens=True).split() == ["1", "2"]


def test_parallel_text_files(script, tmp_path):
    module = script("translation")
    for language, lines in {"de": "ein Haus\nzwei \u2028 Hunde\n", "en": "a house\ntwo dogs\n"}.items():
        with gzip.open(tmp_path / f"x.{language}.txt.gz", "wt", encoding="utf-8") as file:
            file.write(lines)
    read = module.read_parallel(module.TranslationArguments(smoke=True))
    rows = read(str(tmp_path / "x.{lang}.txt.gz"), "train").to_list()
    assert rows == [{"de": "ein Haus", "en": "a house"}, {"de": "zwei \u2028 Hunde", "en": "two dogs"}]
    (tmp_path / "y.de.txt").write_text("eins\nzwei\n", encoding="utf-8")
    (tmp_path / "y.en.txt").write_text("one\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"different numbers of lines: \{'de': 2, 'en': 1\}"):
        read(str(tmp_path / "y.{lang}.txt"), "train")


@pytest.mark.usefixtures("no_step")
class TestBadData:
    """Each fault is named before the first step."""

    def test_no_data(self, script, tmp_path):
        with pytest.raises(ValueError, match="there is no data"):
            script("text_classification").main(["--output_dir", str(tmp_path)])

    def test_no_file(self, script, tmp_path):
        arguments = text_arguments(tmp_path, [("good", 1)], "--train_file", "absent.csv", "--data_dir", str(tmp_path))
        with pytest.raises(ValueError, match=r"cannot read train_file '.*absent.csv': .*no such file"):
            script("text_classification").main(arguments)

    def test_unknown_ending(self, script, tmp_path):
        arguments = text_arguments(tmp_path, [("good", 1)], "--train_file", "data.docx")
        with pytest.raises(ValueError, match=r"'data.docx' must end in one of \['.csv'"):
            script("text_classification").main(arguments)

    def test_missing_column(self, script, tmp_path):
        arguments = text_arguments(tmp_path, [("good", 1)], "--text_column", "sentence")
        with pytest.raises(
            ValueError, match=r"'train' has no column 'sentence', only \['text', 'label'\]; --text_column"
        ):
            script("text_classification").main(arguments)

    def test_empty_split(self, script, tmp_path):
        arguments = text_arguments(tmp_path, [])
        with pytest.raises(ValueError, match="the split 'train' is empty: .*train_file.tsv"):
            script("text_classification").main(arguments)

    @pytest.mark.parametrize("ending", ["jsonl", "txt", "csv"])
    def test_file_without_content(self, script, tmp_path, ending):
        (tmp_path / f"t.{ending}").write_text("", encoding="utf-8")
        arguments = text_arguments(tmp_path, [("a", 1)], "--train_file", str(tmp_path / f"t.{ending}"))
        with pytest.raises(ValueError, match=f"the split 'train' is empty: .*t.{ending}"):
            script("text_classification").main(arguments)

    def test_too_few_rows_to_validate_on(self, script, tmp_path):
        arguments = text_arguments(tmp_path, [("good", 1)])
        place = arguments.index("--validation_file")
        with pytest.raises(ValueError, match="'train' has 1 rows, too few .*--validation_file"):
            script("text_classification").main(arguments[:place] + arguments[place + 2 :])

    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            ("text_classification", "text,label\n", "the split 'validation' is empty: .*data"),
            ("text_classification", "", "the split 'validation' is empty: .*validation.csv has no content"),
            ("text_classification", 'text,label\n"good', "cannot read data_dir '.*data': .*Error"),
            ("time_series", 'text,label\n"good', "cannot read data_dir '.*data': .*Error"),
        ],
    )
    def test_faults_in_a_directory(self, script, tmp_path, name, content, message):
        (tmp_path / "data").mkdir()
        for split, text in {"train": "text,label\ngood,1\nbad,0\n", "validation": content}.items():
            (tmp_path / "data" / f"{split}.csv").write_text(text, encoding="utf-8")
        arguments = ["--data_dir", str(tmp_path / "data"), "--output_dir", str(tmp_path / "out")]
        with pytest.raises(ValueError, match=message):
            script(name).main([*arguments, "--cache_dir", str(tmp_path / "cache")])

    def test_empty_parallel_files(self, script, tmp_path):
        for language in ("de", "en"):
            (tmp_path / f"empty.{language}.txt").write_text("", encoding="utf-8")
        options = ["--train_file", str(tmp_path / "empty.{lang}.txt"), "--output_dir", str(tmp_path)]
        with pytest.raises(ValueError, match="the split 'train' is empty"):
            script("translation").main(options)

    @pytest.mark.parametrize(
        ("rows", "message"),
        [
            (
                [("good", 1), ("bad", 0), ("odd", -1)],
                "row 2 of the split 'train' has the label -1 in 'label', not 0 to 1",
            ),
            ([("good", 1), ("bad", 1.5)], "must be integers or words, got \\['float'\\]"),
            ([("good", 0), ("bad", 0)], "nothing to tell apart"),
            (
                [("good", 1), ("bad", 0), ("odd", 57)],
                "go up to 57, but 55 of the smaller ones never occur, the first being 2. .* --num_labels",
            ),
            (
                [("good", 1), ("bad", ""), ("odd", 0)],
                "row 1 of the split 'train' has an empty label in the column 'label'",
            ),
            ([("good", 1), (" ", 0)], "row 1 of the split 'train' has an empty text in the column 'text'"),
            ([("17", 1), ("4", 0)], "'text' of the split 'train' must hold text, but it was read as Value.*int64"),
        ],
    )
    def test_labels(self, script, tmp_path, rows, message):
        with pytest.raises(ValueError, match=message):
            script("text_classification").main(text_arguments(tmp_path, rows))

    def test_label_outside_the_training_labels(self, script, tmp_path):
        train = [("good", 1), ("bad", 0)]
        arguments = text_arguments(tmp_path, train, validation=[("good", 1), ("odd", 2)])
        with pytest.raises(ValueError, match="row 1 of the split 'validation' has the label 2 in 'label', not 0 to 1"):
            script("text_classification").main(arguments)
        words = text_arguments(tmp_path, [("a", "yes"), ("b", "no")], validation=[("c", "perhaps")])
        with pytest.raises(ValueError, match=r"has the label 'perhaps' in 'label', not \['no', 'yes'\]"):
            script("text_classification").main(words)

    def test_num_labels_is_the_range(self, script, tmp_path):
        arguments = text_arguments(tmp_path, [("good", 3), ("bad", 0)], "--num_labels", "3")
        with pytest.raises(ValueError, match="row 0 of the split 'train' has the label 3 in 'label', not 0 to 2"):
            script("text_classification").main(arguments)

    def test_missing_value(self, script, tmp_path):
        (tmp_path / "t.json").write_text('{"text": "a", "label": 0}\n{"text": null, "label": 1}\n', encoding="utf-8")
        arguments = text_arguments(tmp_path, [("a", 1)], "--train_file", str(tmp_path / "t.json"))
        with pytest.raises(ValueError, match="row 1 of the split 'train' has no value in the column 'text'"):
            script("text_classification").main(arguments)

    @pytest.mark.parametrize("ending", ["csv.gz", "json", "parquet"])
    def test_corrupt_file(self, script, tmp_path, ending):
        rows = Dataset.from_dict({"text": [f"word{i} " * 9 for i in range(900)], "label": [0, 1, 1] * 300})
        path = tmp_path / f"t.{ending}"
        getattr(rows, f"to_{ending.removesuffix('.gz')}")(path)
        whole = gzip.compress(path.read_bytes()) if ending.endswith("gz") else path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])  # as a download leaves it that was cut off
        arguments = text_arguments(tmp_path, [("a", 1)], "--train_file", str(path))
        with pytest.raises(ValueError, match=f"cannot read train_file '.*t.{ending}': "):
            script("text_classification").main(arguments)

    def test_corrupt_arrays(self, script, tmp_path):
        path = tmp_path / "t.npz"
        options = ["--train_file", str(path), "--output_dir", str(tmp_path)]
        np.savez_compressed(path, x_train=np.zeros((4, 8, 8), np.uint8))
        with pytest.raises(ValueError, match="cannot read train_file .*y_train"):
            script("image_classification").main(options)
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(ValueError, match="cannot read train_file .*BadZipFile"):
            script("image_classification").main(options)

    def test_shape_of_labels(self, script, tmp_path):
        labels = np.arange(4)[:, None]
        np.savez(tmp_path / "t.npz", x_train=np.zeros((4, 8, 8), np.uint8), y_train=labels)
        options = ["--train_file", str(tmp_path / "t.npz"), "--output_dir", str(tmp_path)]
        with pytest.raises(ValueError, match=r"4 images, but y_train has the shape \(4, 1\)"):
            script("image_classification").main(options)
        Dataset.from_dict({"text": list("abcd"), "label": labels.tolist()}).to_json(tmp_path / "t.json")
        arguments = text_arguments(tmp_path, [("a", 1)], "--train_file", str(tmp_path / "t.json"))
        with pytest.raises(ValueError, match="'label' must be integers or words, one per row, got List"):
            script("text_classification").main(arguments)

    @pytest.mark.parametrize("pixels", [np.linspace(0, 255, 64), np.linspace(-1, 1, 64), np.arange(64) * 10])
    def test_pixels_out_of_range(self, script, tmp_path, pixels):
        images = np.tile(pixels.reshape(1, 8, 8), (4, 1, 1))
        np.savez(tmp_path / "t.npz", x_train=images, y_train=np.arange(4) % 2)
        options = ["--train_file", str(tmp_path / "t.npz"), "--output_dir", str(tmp_path)]
        with pytest.raises(ValueError, match=r"row 0 .* no readable image: pixels must be integers from 0 to 255 or"):
            script("image_classification").main(options)

    def test_corrupt_image(self, script, tmp_path):
        Dataset.from_dict({"image": [b"\x89PNG no", b""], "label": [0, 1]}).to_parquet(tmp_path / "t.parquet")
        options = ["--train_file", str(tmp_path / "t.parquet"), "--validation_file", str(tmp_path / "t.parquet")]
        options += ["--output_dir", str(tmp_path), "--cache_dir", str(tmp_path)]
        with pytest.raises(ValueError, match="row 0 of the split 'train' has no readable image"):
            script("image_classification").main(options)

    def test_too_short_a_text(self, script, tmp_path):
        (tmp_path / "t.txt").write_text("a few words\n" * 4, encoding="utf-8")
        options = ["--train_file", str(tmp_path / "t.txt"), "--validation_file", str(tmp_path / "t.txt")]
        options += ["--output_dir", str(tmp_path), "--cache_dir", str(tmp_path), "--vocab_size", "270"]
        with pytest.raises(ValueError, match=r"the split 'train' has \d+ tokens, less than one block of 256"):
            script("causal_lm").main(options)

    def test_unknown_argument(self, script, tmp_path):
        with pytest.raises(ValueError, match="not used by the HfArgumentParser: .*--alhpa"):
            script("causal_lm").main(["--smoke", "--output_dir", str(tmp_path), "--alhpa", "1.5"])


def test_images_of_floating_point_numbers(script):
    as_bytes = script("image_classification").as_bytes
    image = np.arange(256, dtype=np.uint8).reshape(16, 16)
    assert np.array_equal(as_bytes(image / 255), image) and np.array_equal(as_bytes(image.astype(int)), image)


def test_num_labels_allows_classes_without_a_sample(script, tmp_path):
    script("text_classification")
    from data_checks import check_labels

    splits = {"train": Dataset.from_dict({"label": [0, 3]})}
    assert check_labels(splits, "label", 5) == list("01234")


def test_one_file_with_several_splits(script, tmp_path):
    script("text_classification")
    from data_splits import DataArguments, load_splits

    rows = {"text": list("abcdef"), "split": ["train", "test"] * 3}
    lines = ["text,split", *(f"{text},{split}" for text, split in zip(*rows.values(), strict=True))]
    (tmp_path / "all.csv.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    files = {f"{split}_file": "all.csv.gz" for split in ("train", "test")}
    data = DataArguments(data_dir=str(tmp_path), split_column="split", cache_dir=str(tmp_path), **files)
    splits = load_splits(data, dict)
    assert splits["test"]["text"] == ["b", "d", "f"]
    assert sorted([*splits["train"]["text"], *splits["validation"]["text"]]) == ["a", "c", "e"]
    with pytest.raises(ValueError, match="no column 'part'.*--split_column"):
        load_splits(DataArguments(data_dir=str(tmp_path), split_column="part", cache_dir=str(tmp_path), **files), dict)


def test_a_directory_and_a_test_split_without_labels(script, tmp_path):
    module = script("text_classification")
    (tmp_path / "data").mkdir()
    rows = {"text": ["good", "bad"] * 8, "label": [1, 0] * 8}
    for name, labels in {"train": rows["label"], "validation": rows["label"], "test": [-1] * 16}.items():
        Dataset.from_dict({**rows, "label": labels}).to_json(tmp_path / "data" / f"{name}.jsonl")
    options = text_arguments(tmp_path, [])[4:]
    summary = module.main([*options, "--data_dir", str(tmp_path / "data"), "--do_eval"])
    assert set(summary["quality"]) == {"eval_loss", "eval_accuracy", "eval_macro_f1"}
    with pytest.raises(ValueError, match="row 0 of the split 'test' has the label -1"):
        module.main([*options, "--data_dir", str(tmp_path / "data"), "--do_predict"])


def test_batches_of_like_length_do_not_reorder_the_test_set(script, tmp_path):
    quality = smoke(script("translation"), tmp_path, "--train_sampling_strategy", "group_by_length")["quality"]
    assert quality["test_bleu_greedy"] > 50


@pytest.mark.parametrize("before", [["<s>"], []])
def test_blocks_of_text(script, before, tmp_path):
    script("causal_lm")
    from data_splits import load_splits
    from text_blocks import TextArguments, text_blocks
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = {"<s>": 0, "</s>": 1, "a": 2, **{str(i): i + 3 for i in range(100)}}
    backend = Tokenizer(models.WordLevel(words, unk_token="a"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    template = " ".join([*before, "$A", "</s>"])
    backend.post_processor = processors.TemplateProcessing(single=template, special_tokens=[("<s>", 0), ("</s>", 1)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="a")
    (tmp_path / "train.txt").write_text("".join(f"{i}\n" for i in range(100)))
    data = TextArguments(
        train_file=str(tmp_path / "train.txt"), validation_share=0.2, block_size=10, max_train_samples=3
    )
    splits = load_splits(data, dict, in_order=True)
    for split, first, count in (("train", 0, 3), ("validation", 80, 2)):
        blocks = text_blocks(splits[split], split, data, tokenizer)["input_ids"]
        assert len(blocks) == count
        inside = 10 - 1 - len(before)
        for block in blocks:
            start = block[len(before)]
            assert block == [*[0] * len(before), *range(start, start + inside), 1]
            assert (start - 3 - first) % inside == 0
