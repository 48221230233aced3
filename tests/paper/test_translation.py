# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The translation experiment: its quick version from end to end, its data, its judgement."""

import gzip
import json

import pytest
from reporting import select


pytest.importorskip("sacrebleu", reason="BLEU")
pytest.importorskip("matplotlib", reason="the report has pictures")

import translation  # noqa: E402
import translation_report  # noqa: E402


def test_quick(tmp_path):
    only = ["--quick", "--output_dir", str(tmp_path)]
    for model in ("transformer", "dense_hopfield", "sparse_hopfield"):
        record = translation.main([*only, "--only", f"*/{model}/*"])
    assert len(record["missing"]) == len(translation.MODELS) - 3
    results = {model: select(record, model=model)[0] for model in translation.MODELS if select(record, model=model)}
    # one formula, two implementations: the same training but for rounding
    assert results["transformer"]["eval_loss"] == pytest.approx(results["dense_hopfield"]["eval_loss"], abs=0.01)
    assert results["transformer"]["eval_loss"] != results["sparse_hopfield"]["eval_loss"]
    assert len({result["parameters"] for result in results.values()}) == 1
    assert results["transformer"]["share_of_keys"] == 1 and results["sparse_hopfield"]["share_of_keys"] < 0.9
    text = (tmp_path / "translation.md").read_text()
    assert text.startswith("## 5.") and "### Claims" in text and results["transformer"]["signature"] in text
    assert (tmp_path / "translation.png").stat().st_size > 1000
    assert not list(tmp_path.glob("translation_runs/*/*/*"))  # no weights are left behind


def test_russian_split_keeps_test_sentences_out_of_training(tmp_path):
    source = tmp_path / "data" / "translation"
    source.mkdir(parents=True)
    lines = [f"sentence {i}\tпредложение {i % 2500}" for i in range(3000)] + ["sentence 1\tпредложение 1"] * 50
    with gzip.open(source / "tatoeba_en_ru.tsv.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    arguments = translation.prepare_data("tatoeba_ru_en", tmp_path / "data", tmp_path / "out")
    files = dict(zip(arguments[::2], arguments[1::2], strict=True))
    assert files["--source_lang"] == "ru" and files["--target_lang"] == "en"
    parts = {}
    for split in ("train", "validation", "test"):
        with open(files[f"--{split}_file"], encoding="utf-8") as file:
            parts[split] = [json.loads(line) for line in file]
    assert len(parts["test"]) == len(parts["validation"]) == 1000 and 0 < len(parts["train"]) <= 1000
    for language in ("en", "ru"):
        held = {row[language] for split in ("test", "validation") for row in parts[split]}
        assert not held & {row[language] for row in parts["train"]}


def test_all_files_are_asked_for_before_anything_runs(tmp_path):
    folder = tmp_path / "translation"
    folder.mkdir()
    for name in translation.FILES[:-1]:
        (folder / name).touch()
    arguments = translation.ExperimentArguments(data_dir=str(tmp_path))
    with pytest.raises(FileNotFoundError, match="hotel_en_ru.tsv.gz"):
        translation.make_cells(arguments)
    (folder / translation.FILES[-1]).touch()
    assert translation.make_cells(arguments)


def test_verdicts():
    def record(sparse, pairs=("multi30k_de_en", "multi30k_en_de"), dense=30.1):
        cells = {}
        for pair in pairs:
            for model, bleu in (
                ("transformer", 30.0),
                ("sparse_hopfield_beta0.1", sparse),
                ("entmax15_beta0.3", 30.0),
                ("dense_hopfield", dense),
            ):
                settings = {"pair": pair, "model": model, "seed": 0}
                cells[f"{pair}/{model}"] = {"settings": settings, "result": {"bleu": bleu}}
        return {"cells": cells}

    def judged(*arguments, **others):
        made = record(*arguments, **others)
        return [row[1] for row in [*translation_report.verdicts(made), *translation_report.targets(made)[:2]]]

    texts = [row[2] for row in translation_report.verdicts(record(31.5))]
    assert "S Hopfield, beta 0.1 minus softmax: Multi30k DE-EN 1.50" in texts[0] and "0.10 BLEU" in texts[-1]
    assert judged(31.5) == ["reproduced", "not run", "not", "met", "met"]
    assert judged(31.5, pairs=["multi30k_de_en"]) == ["partly", "not run", "not", "partly met", "partly met"]
    assert judged(29.75) == ["not", "not run", "not", "met", "met"]
    assert judged(29.6) == ["not", "not run", "not", "missed", "met"]
    assert judged(30.5, pairs=["tatoeba_en_ru"]) == ["not run", "partly", "not run", "not run", "not run"]
    assert judged(28.0, dense=32.0)[2] == "reproduced"
    russian = [pair for pair in translation_report.PAIRS if "ru" in pair.split("_")]
    assert judged(30.5, pairs=russian)[1] == "reproduced" and judged(31.5, pairs=russian)[1] == "not"
    assert translation_report.verdicts({"cells": {}})[0][1] == "not run"
