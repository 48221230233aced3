# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Machine translation: one small Marian model with softmax attention, dense and sparse Hopfield retrieval.

    python examples/paper/translation.py --data_dir DATA --output_dir OUT     # Multi30k DE-EN, EN-DE; small EN-RU corpora
    python examples/paper/translation.py --quick --output_dir OUT             # numbers to words, seconds

Every cell is a run of `examples/run_translation.py`, trained from scratch with the same size, data, steps and seed, and scored
with beam 5 and sacrebleu. An interrupted run resumes from its last checkpoint. The cells are in order of importance:
`--max_minutes` and `--only` run a part of them, and the same command later runs the rest.

With one retrieval step, dense Hopfield retrieval has the same formula as softmax attention and is computed by the same kernel.
Its rows show that nothing else differs.

Beta multiplies the model's own 1 / sqrt(head width). Sparse models are trained with beta 1 and with about n ** (1 - alpha), where
n is the length of a sentence. If all n weights are equal, as they nearly are in a new model, the weights then respond to the
scores as fast as those of softmax (see `NOTES` in translation_report.py).
"""

import gzip
import json
import random
import shutil
import sys
from pathlib import Path
from typing import Any

from harness import Cell, ExperimentArguments, parse, run, write_text
from translation_report import MOST_PAIRS, PAIRS, SIZE, TRAINING, report


sys.path.append(str(Path(__file__).parents[1]))  # the training scripts

import run_translation  # noqa: E402


MODELS = {
    "transformer": ["--sparse_hopfield", "false"],
    "dense_hopfield": ["--alpha", "1.0"],
    "sparse_hopfield_beta0.1": ["--alpha", "2.0", "--beta", "0.1"],
    "entmax15_beta0.3": ["--alpha", "1.5", "--beta", "0.3"],
    "sparse_hopfield": ["--alpha", "2.0"],
    "entmax15": ["--alpha", "1.5"],
    "scheduled": ["--alpha", "2.0", "--alpha_schedule", "linear", "--schedule_steps", "0.75"],
}
# in the folder `translation` of the data folder
FILES = [
    *(f"multi30k.{part}.{lang}.txt.gz" for part in ("train", "val", "test_2016_flickr") for lang in ("de", "en")),
    *("tatoeba_en_ru.tsv.gz", "hotel_en_ru.tsv.gz"),
]


def prepare_data(pair: str, data_dir: Path, folder: Path) -> list[str]:
    """
    Prepare the data of a pair and return the arguments of `run_translation.py` for them. The EN-RU corpora have no test set:
    1000 pairs are held out for testing and 1000 for validation. None of their source or target sentences occurs in the training
    data, which are limited to `MOST_PAIRS`.
    """
    corpus, source, target = pair.split("_")
    languages = ["--source_lang", source, "--target_lang", target]
    if corpus == "multi30k":
        files = {"train": "train", "validation": "val", "test": "test_2016_flickr"}
        names = [[f"--{split}_file", f"translation/multi30k.{name}.{{lang}}.txt.gz"] for split, name in files.items()]
        return ["--data_dir", str(data_dir), *languages, *(word for name in names for word in name)]
    with gzip.open(data_dir / "translation" / f"{corpus}_en_ru.tsv.gz", "rt", encoding="utf-8") as file:
        pairs = sorted({tuple(line.split("\t")) for line in file.read().split("\n")[:-1]})
    pairs = [(english, russian) for english, russian in pairs if english.strip() and russian.strip()]
    random.Random(0).shuffle(pairs)
    held = {"test": pairs[:1000], "validation": pairs[1000:2000]}
    seen = {sentence for part in held.values() for both in part for sentence in both}
    held["train"] = [both for both in pairs[2000:] if not seen.intersection(both)][: MOST_PAIRS.get(corpus)]
    arguments = list(languages)
    for split, part in held.items():
        path = folder / f"{corpus}.{split}.jsonl"
        lines = (json.dumps({"en": english, "ru": russian}, ensure_ascii=False) for english, russian in part)
        write_text(path, "\n".join(lines) + "\n")
        arguments += [f"--{split}_file", str(path)]
    return arguments


def translate(
    pair: str,
    model: str,
    seed: int,
    size: dict[str, int],
    training: dict[str, float],
    data_dir: str | None,
    output_dir: str,
) -> dict[str, Any]:
    """Train one model on one pair and translate its test set."""
    scratch = Path(output_dir) / "translation_runs" / pair / model / f"seed{seed}"
    if pair == "numbers_to_words":
        arguments = ["--smoke", "--max_steps", str(training["steps"]), "--save_strategy", "no"]
    else:
        changes = {"d_model": size["d_model"], "scale_embedding": True}
        for part in ("encoder", "decoder"):
            changes |= {f"{part}_layers": size["layers"], f"{part}_attention_heads": size["heads"]}
            changes |= {f"{part}_ffn_dim": size["ffn_dim"]}
        arguments = [
            *prepare_data(pair, Path(data_dir), scratch / "data"),
            *(
                "--model_type",
                "marian",
                "--vocab_size",
                str(size["vocab_size"]),
                "--max_length",
                "96",
                "--num_beams",
                "5",
            ),
            *("--config_overrides", ",".join(f"{key}={value}" for key, value in changes.items())),
            *("--num_train_epochs", str(training["epochs"]), "--learning_rate", str(training["learning_rate"])),
            *("--per_device_train_batch_size", str(training["batch_size"]), "--per_device_eval_batch_size", "100"),
            *("--warmup_steps", str(training["warmup_steps"]), "--label_smoothing_factor", "0.1"),
            *("--train_sampling_strategy", "group_by_length", "--cache_dir", str(scratch / "cache")),
            *("--save_strategy", "epoch", "--save_total_limit", "1", "--logging_steps", "200"),
            *("--do_train", "--do_eval", "--do_predict"),
        ]
    more = ["--seed", str(seed), "--report_to", "none", "--output_dir", str(scratch / "model")]
    more += ["--beta", "1.0", *MODELS[model]]  # the last of two values counts
    summary = run_translation.main([*arguments, *more])
    quality = summary["quality"]
    beam = next(key for key in quality if key.startswith("test_bleu_beam"))
    result = {
        "bleu": quality[beam],
        "bleu_greedy": quality["test_bleu_greedy"],
        "signature": quality["bleu_signature"],
        "eval_loss": quality["eval_loss"],
        "share_of_keys": summary["support"]["share_of_keys"],
        "parameters": summary["parameters"],
        "steps": summary["steps"],
        "samples_per_second": summary["speed"].get("train_samples_per_second"),
    }
    shutil.rmtree(scratch)  # weights and copies of the data; only the record is kept
    return result


def make_cells(arguments: ExperimentArguments) -> dict[str, Cell]:
    """Make all cells, the most important first."""
    context = {"data_dir": arguments.data_dir, "output_dir": arguments.output_dir}
    if arguments.quick:
        pairs, training = ["numbers_to_words"], {"steps": 100}
    else:
        arguments.require_data(*(f"translation/{name}" for name in FILES))
        pairs, training = [pair for pair in PAIRS if pair != "numbers_to_words"], TRAINING
    cells = {}
    for seed in arguments.seed_range(3):
        for pair in pairs:
            for model in MODELS:
                settings = {"pair": pair, "model": model, "seed": seed, "size": SIZE, "training": training}
                fixed = {"arguments": list(MODELS[model]), "most_pairs": MOST_PAIRS.get(pair.partition("_")[0])}
                cells[f"{pair}/{model}/seed{seed}"] = Cell(translate, settings, context, fixed)
    return cells


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Run the experiment."""
    arguments = parse(ExperimentArguments, argv)
    return run("translation", arguments, make_cells(arguments), report)


if __name__ == "__main__":
    main()
