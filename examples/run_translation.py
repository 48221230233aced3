#!/usr/bin/env python
# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Translation with Seq2SeqTrainer, dense or with sparse Hopfield retrieval. `--smoke` runs a tiny example.

Two parallel text files are given as one name that contains `{lang}`: `--train_file train.{lang}.txt.gz`. The test set is
translated greedily and with beam search, and scored with sacrebleu.
"""

import gzip
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from data_checks import check_texts
from data_splits import DataArguments, first_batches, load_splits, wanted_splits
from datasets import Dataset
from model_loading import ModelArguments, load_config, load_model
from script_arguments import parse_arguments
from tokenizer_loading import load_tokenizer, token_values
from training_run import run
from transformers import AutoModelForSeq2SeqLM, DataCollatorForSeq2Seq, PreTrainedModel, Seq2SeqTrainingArguments

from hf_sparse_hopfield.metrics import load_metric
from hf_sparse_hopfield.training import SparseHopfieldSeq2SeqTrainer


SMOKE = (
    "--source_lang numbers --target_lang words --model_type marian --vocab_size 330 --max_length 24 --max_steps 150 "
    "--per_device_train_batch_size 32 --learning_rate 5e-3 --num_beams 2 --warmup_steps 20 --config_overrides "
    "d_model=64,encoder_layers=1,decoder_layers=1,encoder_attention_heads=4,decoder_attention_heads=4,encoder_ffn_dim=64,"
    "decoder_ffn_dim=64,max_position_embeddings=64,dropout=0.0,init_std=0.1"
).split()


@dataclass
class TranslationArguments(DataArguments):
    """Data of translation."""

    source_lang: str = field(default="de", metadata={"help": "column (and {lang} in file names) to translate from"})
    target_lang: str = field(default="en", metadata={"help": "column (and {lang} in file names) to translate to"})
    source_prefix: str = field(default="", metadata={"help": "prefix of every source text, as T5 needs it"})
    max_length: int = field(default=128, metadata={"help": "maximum number of tokens; longer texts are truncated"})
    num_beams: int = field(
        default=5, metadata={"help": "beams of the second translation of the test set, after the greedy one"}
    )


def smoke_data() -> dict[str, Dataset]:
    """Sequences of digits and their names."""
    names = "zero one two three four five six seven eight nine".split()
    generator = np.random.default_rng(0)

    def split(count: int) -> Dataset:
        digits = [generator.integers(0, 10, generator.integers(4, 7)).tolist() for _ in range(count)]
        return Dataset.from_dict(
            {
                "numbers": [" ".join(map(str, number)) for number in digits],
                "words": [" ".join(names[digit] for digit in number) for number in digits],
            }
        )

    return {"train": split(600), "validation": split(32), "test": split(32)}


def read_parallel(data: TranslationArguments) -> Callable[[str, str], Dataset]:
    """Return a reader of two parallel text files, for [`load_splits`]."""

    def read(path: str, split: str) -> Dataset:
        if "{lang}" not in path:
            raise ValueError("the name of a text file must contain {lang}, because it stands for two files")
        lines = {}
        for language in (data.source_lang, data.target_lang):
            name = path.replace("{lang}", language)
            with (gzip.open if name.endswith(".gz") else open)(name, "rt", encoding="utf-8", newline="\n") as file:
                lines[language] = file.read().removesuffix("\n").split("\n")
        counts = {language: len(texts) for language, texts in lines.items()}
        if len(set(counts.values())) > 1:
            raise ValueError(f"the two files have different numbers of lines: {counts}")
        empty = list(lines.values()) == [[""], [""]]
        return Dataset.from_dict({language: [] if empty else texts for language, texts in lines.items()})

    return read


def translate(
    trainer: SparseHopfieldSeq2SeqTrainer, dataset: Dataset, num_beams: int, max_length: int
) -> tuple[list[str], dict]:
    """Translate a dataset. Returns the translations and Trainer's metrics."""
    trainer.args.predict_with_generate = True
    # If training batches are grouped by length, Trainer also reorders the test set, but not the references.
    trainer.args.train_sampling_strategy = "random"
    output = trainer.predict(dataset, max_length=max_length, num_beams=num_beams, metric_key_prefix="test")
    tokenizer = trainer.processing_class
    ids = np.where(output.predictions == -100, tokenizer.pad_token_id, output.predictions)
    return [text.strip() for text in tokenizer.batch_decode(ids, skip_special_tokens=True)], output.metrics


def flattened(dataset: Dataset) -> Dataset:
    """Turn the column `translation`, as translation data on the Hub have it, into one column per language."""
    if "translation" not in dataset.column_names:
        return dataset
    flat = dataset.select_columns("translation").flatten()
    return flat.rename_columns({name: name.removeprefix("translation.") for name in flat.column_names})


def encoded(dataset: Dataset, data: TranslationArguments, tokenizer: Any) -> Dataset:
    """Tokenize sources and targets."""
    languages = [data.source_lang, data.target_lang]

    def encode(rows: dict[str, list[str]]) -> dict[str, list]:
        sources = [data.source_prefix + text for text in rows[data.source_lang]]
        inputs = tokenizer(sources, truncation=True, max_length=data.max_length)
        targets = tokenizer(text_target=rows[data.target_lang], truncation=True, max_length=data.max_length)
        return {**inputs, "labels": targets["input_ids"]}

    return dataset.select_columns(languages).map(encode, batched=True, remove_columns=languages)


def make_model(model_arguments: ModelArguments, tokenizer: Any) -> PreTrainedModel:
    """Load the model. A new one starts its output with padding, as Marian does."""
    values = token_values(model_arguments, tokenizer)
    if values:
        values |= {"decoder_start_token_id": tokenizer.pad_token_id, "decoder_vocab_size": len(tokenizer)}
    config = load_config(model_arguments, "marian", **values)
    model = load_model(model_arguments, config, AutoModelForSeq2SeqLM)
    if values:
        model.generation_config.update(
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
            decoder_start_token_id=tokenizer.pad_token_id,
            forced_eos_token_id=tokenizer.eos_token_id,
        )
    return model


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Train, evaluate and translate the test set. Returns the summary."""
    arguments = parse_arguments(TranslationArguments, SMOKE, argv, Seq2SeqTrainingArguments)
    model_arguments, data, sparse, training, _ = arguments
    splits = load_splits(data, smoke_data, {".txt": read_parallel(data)}, wanted_splits(training))
    splits = {split: flattened(dataset) for split, dataset in splits.items()}
    languages = {"source_lang": data.source_lang, "target_lang": data.target_lang}
    check_texts(splits, languages)
    first = next(iter(splits.values()))
    texts = (text for language in languages.values() for text in first[language])
    tokenizer = load_tokenizer(model_arguments, texts, template="$A </s>")
    samples = {split: encoded(dataset, data, tokenizer) for split, dataset in splits.items()}
    model = make_model(model_arguments, tokenizer)
    collator = DataCollatorForSeq2Seq(tokenizer, model=model)
    model = sparse.prepare(model, first_batches(samples.get("train"), collator, sparse.calibration_batches, 16))
    training.include_num_input_tokens_seen = "non_padding"
    trainer = SparseHopfieldSeq2SeqTrainer(
        model=model,
        args=training,
        train_dataset=samples.get("train"),
        eval_dataset=samples.get("validation"),
        data_collator=collator,
        processing_class=tokenizer,
        sparse_hopfield_args=sparse,
    )
    decodings = {"greedy": 1, f"beam{data.num_beams}": data.num_beams}

    def test(dataset: Dataset) -> dict[str, Any]:
        quality: dict[str, Any] = {}
        for name, beams in decodings.items():
            hypotheses, metrics = translate(trainer, dataset, beams, data.max_length)
            bleu = load_metric("sacrebleu").compute(
                predictions=hypotheses, references=splits["test"][data.target_lang]
            )
            quality |= {f"test_bleu_{name}": bleu["score"], "bleu_signature": bleu["signature"]}
            quality["test_loss"] = metrics["test_loss"]
            quality[f"test_{name}_samples_per_second"] = metrics["test_samples_per_second"]
            if trainer.is_world_process_zero():
                path = os.path.join(training.output_dir, f"test_{name}.txt")
                with open(path, "w", encoding="utf-8") as file:
                    file.writelines(f"{line}\n" for line in hypotheses)
        return quality

    speeds = [f"{name}_samples_per_second" for name in decodings]
    return run(trainer, arguments, samples, "translation", keep=("loss", "signature", *decodings, *speeds), test=test)


if __name__ == "__main__":
    main()
