# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Each task against a computation of its own, and what is refused."""

import math
import statistics

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    pipeline,
)

from hf_sparse_hopfield.comparison import CompareOptions, compare
from hf_sparse_hopfield.demo.text import TEXT
from hf_sparse_hopfield.progress import progress_bar

from ..tiny_models import tiny_model
from .conftest import LABELS, random_texts, save_both, word_tokenizer


def options(**changes):
    return CompareOptions(**{"no_memory": True, "length": 16, **changes})


def write(path, rows):
    getattr(Dataset.from_list(rows), {".csv": "to_csv", ".jsonl": "to_json", ".parquet": "to_parquet"}[path.suffix])(
        path
    )
    return str(path)


def check_support(report):
    assert report.support["share_of_keys"].dense == 1
    assert 0 < report.support["share_of_keys"].sparse < 1
    assert report.support["mean_support"].sparse < report.support["mean_support"].dense
    assert report.support["mean_entropy"].sparse < report.support["mean_entropy"].dense
    assert report.speed["seconds_per_batch"].sparse > 0


def test_each_part_knows_how_far_it_is(language_models, tmp_path, monkeypatch):
    from hf_sparse_hopfield.comparison import comparison

    bars = []

    def watched(*arguments, **named):
        bars.append(progress_bar(*arguments, **named))
        return bars[-1]

    monkeypatch.setattr(comparison, "progress_bar", watched)
    (tmp_path / "text.txt").write_text(TEXT[:1500])
    small = options(samples=3, no_memory=False)
    compare(*language_models, "text-generation", str(tmp_path / "text.txt"), small, progress=True)
    assert [bar.desc for bar in bars] == ["computing metrics", "counting keys", "measuring memory"]
    assert all(bar.n == bar.total > 1 for bar in bars)


def test_text_generation(language_models, tmp_path):
    text = TEXT[:1500]
    (tmp_path / "text.txt").write_text(text)
    report = compare(
        *language_models, "text-generation", str(tmp_path / "text.txt"), options(samples=10**6, batch_size=3)
    )
    tokens = torch.tensor(word_tokenizer()(text)["input_ids"])
    windows = tokens[: len(tokens) // 16 * 16].view(-1, 16)
    losses = []
    for path in language_models:
        model = AutoModelForCausalLM.from_pretrained(path).eval()
        with torch.no_grad():
            losses.append([model(input_ids=window[None], labels=window[None]).loss.item() for window in windows])
    dense, sparse = map(statistics.fmean, losses)
    loss, perplexity = report.quality["loss"], report.quality["perplexity"]
    assert (loss.dense, loss.sparse) == pytest.approx((dense, sparse), rel=1e-5)
    assert (perplexity.dense, perplexity.sparse) == pytest.approx((math.exp(dense), math.exp(sparse)), rel=1e-4)
    differences = [s - d for d, s in zip(*losses, strict=True)]
    assert loss.difference.value == pytest.approx(sparse - dense, rel=1e-3)
    expected = statistics.stdev(differences) / math.sqrt(len(differences))
    assert loss.difference.standard_error == pytest.approx(expected, rel=1e-3)
    assert report.samples == len(windows) and report.batches == math.ceil(len(windows) / 3)
    check_support(report)


def test_fill_mask(masked_models, tmp_path):
    path = write(tmp_path / "rows.parquet", [{"words": text} for text in random_texts(60)])
    with pytest.raises(ValueError, match="no text in a column 'text'; its columns with text are words"):
        compare(*masked_models, "fill-mask", path, options())
    report = compare(*masked_models, "fill-mask", path, options(text_column="words", samples=8))
    assert set(report.quality) == {"perplexity", "loss", "accuracy"}
    model = AutoModelForMaskedLM.from_pretrained(masked_models[0]).eval()
    from hf_sparse_hopfield.comparison.tasks.language_models import FillMask

    cases = FillMask(model, word_tokenizer(), options(text_column="words", samples=8)).cases(path)
    inputs, labels = (
        torch.cat(parts) for parts in ([c.inputs["input_ids"] for c in cases], [c.expected for c in cases])
    )
    masked = inputs == word_tokenizer().mask_token_id
    assert ((labels != -100) == masked).all() and (masked.sum(1) == round(0.15 * 16)).all()
    with torch.no_grad():
        output = model(input_ids=inputs, labels=labels)
    assert report.quality["loss"].dense == pytest.approx(output.loss.item(), rel=1e-5)
    right = (output.logits.argmax(-1) == labels)[masked].float().mean().item()
    assert report.quality["accuracy"].dense == pytest.approx(right)


def test_text_classification(classifiers, tmp_path):
    metrics = pytest.importorskip("sklearn.metrics", reason="the independent computation")
    rows = [{"title": text, "kind": LABELS[number % 3].upper()} for number, text in enumerate(random_texts(40))]
    path = write(tmp_path / "rows.csv", rows)
    columns = {"text_column": "title", "label_column": "kind"}
    report = compare(*classifiers, "text-classification", path, options(**columns, batch_size=7))
    right, chosen = [row["kind"].title() for row in rows], []
    for side, checkpoint in zip(("dense", "sparse"), classifiers, strict=True):
        classify = pipeline("text-classification", checkpoint, max_length=16, truncation=True)
        chosen.append([answer["label"] for answer in classify([row["title"] for row in rows])])
        assert getattr(report.quality["accuracy"], side) == pytest.approx(metrics.accuracy_score(right, chosen[-1]))
        f1 = metrics.f1_score(right, chosen[-1], average="macro", zero_division=0)
        assert getattr(report.quality["macro_f1"], side) == pytest.approx(f1)
    same = np.equal(*chosen)
    hits = [np.equal(right, answers).astype(float) for answers in chosen]
    error = (hits[1] - hits[0]).std(ddof=1) / math.sqrt(40)
    assert report.quality["accuracy"].difference.standard_error == pytest.approx(error)
    assert report.agreement["same_label"] == pytest.approx((same.mean(), same.std(ddof=1) / math.sqrt(40)))
    check_support(report)


def test_image_classification(image_models, tmp_path):
    image_module = pytest.importorskip("PIL.Image", reason="images")
    draw = np.random.default_rng(0)
    for number in range(12):
        folder = tmp_path / "images" / "test" / LABELS[number % 3]
        folder.mkdir(parents=True, exist_ok=True)
        image_module.fromarray(draw.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(folder / f"{number}.png")
    report = compare(*image_models, "image-classification", str(tmp_path / "images"), options(batch_size=5))
    for side, checkpoint in zip(("dense", "sparse"), image_models, strict=True):
        classify = pipeline("image-classification", checkpoint, top_k=1)
        files = sorted((tmp_path / "images").rglob("*.png"))
        right = [classify(str(file))[0]["label"] == file.parent.name for file in files]
        assert getattr(report.quality["accuracy"], side) == pytest.approx(np.mean(right))
    assert report.samples == 12
    check_support(report)


def test_translation(translators, tmp_path):
    sacrebleu = pytest.importorskip("sacrebleu", reason="BLEU")
    tokenizer, found = AutoTokenizer.from_pretrained(translators[0]), {}
    for side, checkpoint in zip(("dense", "sparse"), translators, strict=True):
        model = AutoModelForSeq2SeqLM.from_pretrained(checkpoint).eval()
        found[side] = []
        for text in random_texts(12):
            inputs = tokenizer(text, truncation=True, max_length=16, return_tensors="pt")
            output = model.generate(**inputs, max_new_tokens=15, do_sample=False, num_beams=1)
            found[side].append(tokenizer.decode(output[0], skip_special_tokens=True).strip())
    right = found["dense"][:6] + found["sparse"][6:]
    rows = [{"text": text, "translation": words} for text, words in zip(random_texts(12), right, strict=True)]
    report = compare(*translators, "translation", write(tmp_path / "rows.jsonl", rows), options(batch_size=4))
    for side in ("dense", "sparse"):
        expected = sacrebleu.corpus_bleu(found[side], [right]).score
        assert 0 < expected < 100 and getattr(report.quality["bleu"], side) == pytest.approx(expected)
    check_support(report)


def test_feature_extraction(masked_models, tmp_path):
    (tmp_path / "texts.txt").write_text("\n\n".join(random_texts(14)))
    report = compare(*masked_models, "feature-extraction", str(tmp_path / "texts.txt"), options(batch_size=4))
    tokenizer, embeddings = word_tokenizer(), []
    for checkpoint in masked_models:
        model = AutoModel.from_pretrained(checkpoint).eval()
        with torch.no_grad():
            embeddings.append(
                [
                    model(**tokenizer(text, truncation=True, max_length=16, return_tensors="pt"))
                    .last_hidden_state[0]
                    .mean(0)
                    for text in random_texts(14)
                ]
            )
    cosine = torch.stack([torch.cosine_similarity(a, b, dim=0) for a, b in zip(*embeddings, strict=True)])
    assert report.agreement["cosine"].value == pytest.approx(cosine.mean().item(), rel=1e-4)
    assert report.agreement["cosine"].standard_error == pytest.approx(cosine.std().item() / math.sqrt(14), rel=1e-3)
    assert report.agreement["smallest_cosine"].value == pytest.approx(cosine.min().item(), rel=1e-4)
    assert 0 < report.agreement["same_neighbours"].value <= 1
    assert report.quality == {} and report.samples == 14
    check_support(report)
    with pytest.raises(ValueError, match="11 are needed"):
        compare(*masked_models, "feature-extraction", str(tmp_path / "texts.txt"), options(samples=10))


def test_memory_is_that_of_the_largest_batch(classifiers, tmp_path, monkeypatch):
    asked = []

    def measured(path, task, inputs, dtype):
        asked.append((path, task, dtype, inputs["input_ids"].numel()))
        return 10**6 * len(asked)

    monkeypatch.setattr("hf_sparse_hopfield.comparison.comparison.peak_memory", measured)
    lengths = [3, 9, 14, 4, 5, 6]
    path = write(tmp_path / "rows.csv", [{"text": "a " * length, "label": 0} for length in lengths])
    report = compare(*classifiers, "text-classification", path, CompareOptions(batch_size=1, length=16))
    assert asked == [(path, "text-classification", "float32", 14) for path in classifiers]
    assert report.memory["peak_memory_bytes"].ratio.value == 2


def test_checkpoints_that_do_not_compare_are_refused(language_models, masked_models, classifiers, tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)
    text, (dense, sparse) = str(tmp_path / "text.txt"), language_models
    for pair, message in (
        ((sparse, dense), "the first checkpoint, .* is sparse: exchange the two"),
        ((sparse, sparse), "the first checkpoint, .* is sparse, and it must be the dense"),
        ((dense, dense), "the second checkpoint, .* is dense, and it must be sparse"),
    ):
        with pytest.raises(ValueError, match=message):
            compare(*pair, "text-generation", text, options())
    with pytest.raises(ValueError, match="LlamaForCausalLM, which cannot do fill-mask: .* AutoModelForMaskedLM"):
        compare(*language_models, "fill-mask", text, options())
    with pytest.raises(ValueError, match="task must be one of .*, got 'chess'"):
        compare(*language_models, "chess", text, options())
    tokenizer = word_tokenizer()
    tokenizer.add_tokens(["another"])
    _, other = save_both(tmp_path, tiny_model("bert", vocab_size=len(tokenizer)), tokenizer)
    with pytest.raises(ValueError, match="the tokenizers differ: .* 1 of them are not the same"):
        compare(masked_models[0], other, "fill-mask", text, options())


def test_data_that_do_not_fit_are_refused(classifiers, language_models, tmp_path):
    rows = [{"text": text, "label": number % 3, "word": "none"} for number, text in enumerate(random_texts(6))]
    path = write(tmp_path / "rows.csv", rows)

    def refused(message, data=path, **changes):
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            compare(*classifiers, "text-classification", data, options(**changes))

    refused("no column 'title', only 'text', 'label', 'word'; text_column names it", text_column="title")
    refused("no column 'kind', .*; label_column names it", label_column="kind")
    refused("the label 'none', which the model does not know. It has .*'Sports'", label_column="word")
    refused("split='test' is for a dataset with several: .*rows.csv' has none", split="test")
    refused("there is no file 'nowhere.csv'", data="nowhere.csv")
    refused("the label 3, which", data=write(tmp_path / "more.csv", [*rows, {"text": "a", "label": 3, "word": ""}]))
    (tmp_path / "text.txt").write_text(TEXT)
    with pytest.raises(ValueError, match="split='test' is for a dataset"):
        compare(*language_models, "text-generation", str(tmp_path / "text.txt"), options(split="test"))


def test_labels_that_do_not_match_are_refused(classifiers, tmp_path):
    from transformers import BertForSequenceClassification

    other = BertForSequenceClassification.from_pretrained(classifiers[0], id2label={0: "a", 1: "b", 2: "c"})
    _, sparse = save_both(tmp_path, other, word_tokenizer())
    with pytest.raises(ValueError, match=r"the labels do not match: .*\['World', .*\['a', 'b', 'c'\]"):
        compare(classifiers[0], sparse, "text-classification", "rows.csv", options())
